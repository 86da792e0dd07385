# Sourced by ./dev: one function per command.

# configure_and_build PRESET [TARGET...]: builds the targets, and configures the preset first if needed.
configure_and_build() {
  local preset="$1" guidance=""
  shift
  need_apt $APT_BUILD
  [[ "$preset" = gcc* ]] && need_apt g++-12
  need_ccache_folder
  if [ "$preset" != aarch64 ]; then
    # The build of llguidance mostly waits. With more than one job, the rooms are compiled at the same time, as if llguidance were not
    # available.
    if [ "$JOBS" -gt 1 ] && lacks_llguidance; then
      want_llguidance &
      guidance=$!
      LLGUIDANCE_TRIED=yes
    fi
    want_llguidance
    reconfigure_for_llguidance "build/$preset"
  fi
  configure "$preset"
  say "Building build/$preset"
  say_jobs
  if [ -n "$guidance" ]; then
    cmake --build "build/$preset" -j "$JOBS" --target quire_cli quire_main || { kill "$guidance" 2>/dev/null; die_of "build/$preset was not built"; }
    wait "$guidance"
    reconfigure_for_llguidance "build/$preset"
    configure "$preset"
  fi
  cmake --build "build/$preset" -j "$JOBS" ${1:+--target "$@"} || die_of "build/$preset was not built"
}

# configure PRESET: configures with CMAKE_FLAGS if the preset is not yet configured.
configure() {
  [ ! -f "build/$1/build.ninja" ] || return 0
  say "Configuring build/$1"
  cmake --preset "$1" "${CMAKE_FLAGS[@]}" >"$(log_file "cmake-$1")" 2>&1 || { cat "$(log_file "cmake-$1")" >&2; die_of "cmake failed"; }
}
CMAKE_FLAGS=()

# Adds to CMAKE_FLAGS how a build folder compiles. `serve` and `test` create a new folder with unity builds, which take a third of the time.
# `build`, and the release build of --all, compile each file separately: an edit then recompiles only one file, and each file is checked to
# include its own headers.
together() {
  [ -f "build/$1/CMakeCache.txt" ] || CMAKE_FLAGS+=(-DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=40)
}
one_by_one() {
  grep -qs '^CMAKE_UNITY_BUILD:.*=ON' "build/$1/CMakeCache.txt" || return 0
  CMAKE_FLAGS+=(-DCMAKE_UNITY_BUILD=OFF)
  rm -f "build/$1/build.ninja"
}

# The Python package is part of the release build, unless the build folder was created by `serve`.
with_package() {
  need_apt python3-dev
  need_python build
  CMAKE_FLAGS+=(-DQUIRE_BUILD_PYTHON=ON "-DPython_EXECUTABLE=$VENV/bin/python")
  grep -qs 'QUIRE_BUILD_PYTHON:BOOL=ON' build/release/CMakeCache.txt || rm -f build/release/build.ninja
}

cmd_build() {
  local preset=release
  if [ "${1:-}" = --preset ]; then preset="${2:?--preset needs a name}"; shift 2; fi
  need_apt $APT_TEST
  case "$preset" in asan | tsan) need_apt $APT_SANITIZE ;; esac
  [ "$preset" != release ] || with_package
  [ "$preset" != release ] || one_by_one release
  configure_and_build "$preset" "$@"
}

cmd_serve() { build_and_start serve "$@"; }
cmd_demo() { build_and_start demo "$@"; }

# build_and_start COMMAND [MODEL] [FLAGS...]: builds quire and runs the command.
build_and_start() {
  local command="$1"
  shift
  local model="" fetching=""
  if [ $# -gt 0 ] && [ "${1#-}" = "$1" ]; then model="$1"; shift; fi
  need_apt $APT_BUILD
  # The default model is fetched while the server is built.
  if [ -z "$model" ] && [ ! -f "$MODEL" ]; then
    PROGRESS=off
    need_model &
    fetching=$!
    # shellcheck disable=SC2064  # expands now: the variable no longer exists when the shell ends
    trap "pkill -P $fetching || true; kill $fetching 2>/dev/null || true" EXIT
  fi
  CMAKE_FLAGS=(-DQUIRE_BUILD_TESTS=OFF)
  [ -f build/release/build.ninja ] && CMAKE_FLAGS=()
  together release
  configure_and_build release quire
  if [ -n "$fetching" ]; then
    wait "$fetching" || exit 2
    trap - EXIT
  fi
  local sampling=()
  [ -n "$model" ] || mapfile -t sampling < <(default_model_sampling "$command" "$@")
  exec build/release/quire "$command" "${model:-$MODEL}" "${sampling[@]}" "$@"
}

# default_model_sampling COMMAND [FLAGS...]: prints the flag with the default model's sampling parameters and its value, unless the given
# flags may set them. Without these parameters, many answers of this model are nonsense. Its GGUF file does not contain them.
default_model_sampling() {
  [ "$1" = serve ] || return 0
  case " $* " in *" --generation-config"* | *" --override-generation-config"* | *" --config"*) return 0 ;; esac
  printf '%s\n' --override-generation-config "$MODEL_SAMPLING"
}

# test_preset PRESET [CTEST ARGUMENTS]: runs the C++ suites of one preset; with ROOMS, only the suites of these rooms.
test_preset() {
  local preset="$1" targets=() labels=()
  shift
  CMAKE_FLAGS=(-DQUIRE_BUILD_TESTS=ON)
  if [ "$preset" = release ] && [ "$EXTENT" = all ]; then one_by_one release; else together "$preset"; fi
  # `serve` configures build folders without tests
  [ ! -f "build/$preset/CMakeCache.txt" ] || grep -q 'QUIRE_BUILD_TESTS:BOOL=ON' "build/$preset/CMakeCache.txt" || rm -f "build/$preset/build.ninja"
  [ "$preset" != release ] || with_package
  if [ ${#ROOMS[@]} -gt 0 ]; then
    mapfile -t targets < <(room_tests "${ROOMS[@]}")
    labels=(-L "^($(IFS='|'; echo "${targets[*]%_test}"))\$")
  fi
  [ ${#ROOMS[@]} -eq 0 ] || say_duration "$preset" "${targets[@]}"
  configure_and_build "$preset" "${targets[@]}"
  say "Testing build/$preset${ROOMS[*]:+: ${ROOMS[*]}}"
  local start=$SECONDS
  run_ctest "$preset" "cpp-$preset" -j "$JOBS" -LE fuzz "${labels[@]}" "$@"
  [ ${#ROOMS[@]} -eq 0 ] || [ $# -gt 0 ] || { mkdir -p "$CACHE/durations" && echo $((SECONDS - start)) >"$CACHE/durations/$preset-${targets[*]}"; }
}

# say_duration PRESET TARGET...: prints how long these suites took in the last run on this machine, and the number of build steps. A step
# takes about 6 s of one core if no object is cached.
say_duration() {
  local preset="$1" steps="" last="$CACHE/durations/$1-${*:2}"
  [ ! -f "build/$preset/build.ninja" ] || steps=$(ninja -C "build/$preset" -n "${@:2}" 2>/dev/null | sed -nE '$s|^\[([0-9]+)/.*|\1|p')
  say "Duration: build $(if [ -n "$steps" ]; then echo "about $((steps * 6 / JOBS + 1)) s or less ($steps steps)"; else echo "a few minutes"; fi); \
tests $(if [ -f "$last" ]; then echo "$(cat "$last") s, as in the last run"; else echo "1 to 10 min, not measured here yet"; fi)"
}
ROOMS=()
# extent of a run of ./dev test: empty, ci or all
EXTENT=""

# room_tests ROOM...: prints the test programs of each room in cmake/ with the given name or in the given folder. The tests of a part of a
# room belong to the room.
room_tests() {
  local room found
  for room in "$@"; do
    while grep -qE "quire_room\(\w+ $room PART" cmake/*.cmake; do room=${room%/*}; done
    found=$(sed -nE "/ PART /d; s|^ *quire_room\((\w+) ${room}(/[a-z]+)? .*|\1_test|p" cmake/*.cmake | sort -u)
    [ -n "$found" ] || die "test: there is no room '$room': $(sed -nE 's|^quire_room\(\w+ (\S+) .*|\1|p' cmake/Rooms.cmake | tr '\n' ' ')"
    echo "$found"
  done
}

# test_fuzzers PRESET: with `asan`, runs libFuzzer. With `release`, which is built in any case, plays random changes of the corpora
# (tests/fuzz/play.cpp).
test_fuzzers() {
  CMAKE_FLAGS=(-DQUIRE_BUILD_TESTS=ON)
  together "$1"
  configure_and_build "$1" fuzzers
  say "Running every fuzzer for a short while"
  run_ctest "$1" fuzzers -L fuzz -j "$JOBS"
}

# test_aarch64 [ROOM...]: cross-builds the kernels and the given rooms, and runs them under qemu-user. Kernels run on three processors: with
# matrix instructions (all tests except death tests), with dot products only, and with neither. Each run must choose the kernels that its
# processor supports, and produce the recorded bits.
test_aarch64() {
  need_apt $APT_AARCH64
  CMAKE_FLAGS=(-DQUIRE_BUILD_TESTS=ON)
  together aarch64
  configure_and_build aarch64 kernel_test "${@/%/_test}"
  say "Testing kernels of build/aarch64 under qemu-user"
  # without rooms, as in --ci, the slowest suite is left out, because it takes a quarter of the time
  if [ $# -gt 0 ]; then test_kernels_as max neon_i8mm '-*Death*'; else test_kernels_as max neon_i8mm '-*Death*:SharedRows.*'; fi
  test_kernels_as neoverse-n1 neon 'Kernels.*:*Digests*/neon'
  test_kernels_as cortex-a72 reference 'Kernels.*'
  [ $# -eq 0 ] || run_ctest aarch64 cpp-aarch64 -j "$JOBS" -L "^($(IFS='|' && echo "$*"))\$" --timeout 1500
}

# test_kernels_as PROCESSOR CHOSEN FILTER: runs the kernel tests on this processor, in two processes if two cores are available.
test_kernels_as() {
  local shard shards=1 runs=() status=0
  [ "$JOBS" -lt 2 ] || shards=2
  for ((shard = 0; shard < shards; shard++)); do
    QEMU_CPU="$1" QUIRE_EXPECT_ISA="$2" GTEST_TOTAL_SHARDS="$shards" GTEST_SHARD_INDEX="$shard" GTEST_BRIEF=1 \
      qemu-aarch64-static build/aarch64/kernel_test --gtest_filter="$3" --gtest_output="xml:build/reports/kernel-$1-$shard.xml" &
    runs+=($!)
  done
  for shard in "${runs[@]}"; do wait "$shard" || status=1; done
  return "$status"
}

# run_ctest PRESET NAME [CTEST ARGUMENTS]: saves the output of tests for tools/dev/report.py. If a suite fails, the others still run.
run_ctest() {
  local preset="$1" name="$2"
  shift 2
  ctest --test-dir "build/$preset" --output-on-failure --no-tests=error --output-junit "$PWD/build/reports/$name.xml" \
    --test-output-size-passed 65536 "$@" || HAS_FAILED=yes
}
HAS_FAILED=""

# Prints the Python of a vLLM 0.19.0 environment: $QUIRE_VLLM_PYTHON, or the environment of `./dev oracle setup`. Prints nothing if neither
# exists.
vllm_python() {
  local python="${QUIRE_VLLM_PYTHON:-$ORACLE/bin/python}"
  [ ! -x "$python" ] || echo "$python"
}

# Prints the Python of vLLM 0.32.0: $QUIRE_VLLM_PYTHON_0_32, or the environment of `./dev oracle --vllm 0.32.0 setup`. Prints nothing if
# neither exists.
newer_vllm_python() {
  local python="${QUIRE_VLLM_PYTHON_0_32:-$CACHE/oracle-0.32/bin/python}"
  [ ! -x "$python" ] || echo "$python"
}

# Runs the test files in two processes if two cores are available, because a test mostly uses one core or waits. test_package.py comes first
# (tests/python/conftest.py), because it takes the longest.
test_python() {
  local processes=0
  [ "$JOBS" -lt 2 ] || processes=2
  say "Testing with the official clients and reference libraries (Python)"
  QUIRE_BINARY="$PWD/build/release/quire" PYTHONPATH="$PWD/build/release/python" QUIRE_PYTHON_PACKAGE="$PWD/build/release/python" \
  QUIRE_VLLM_PYTHON="$(vllm_python)" QUIRE_VLLM_PYTHON_0_32="$(newer_vllm_python)" QUIRE_WITHOUT_LLGUIDANCE="$([ -e "$LLGUIDANCE/stamp" ] || echo yes)" \
  QUIRE_TOKENIZE_TOOL="$PWD/build/release/quire_tokenize_tool" QUIRE_TEMPLATE_TOOL="$PWD/build/release/quire_template_tool" \
  QUIRE_CALLS_TOOL="$PWD/build/release/quire_calls_tool" \
    HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false "$VENV/bin/python" -m pytest -q -p no:cacheprovider -n "$processes" --dist loadfile \
    --no-loadscope-reorder -o tmp_path_retention_policy=failed -rs --junitxml=build/reports/python.xml tests/python
}

# Prints the table of clients and calls in docs/clients.md.
test_clients() {
  need_clients
  say "Testing with litellm, langchain-openai, instructor, pydantic-ai, openai-agents, llm and npm's clients"
  QUIRE_BINARY="$PWD/build/release/quire" QUIRE_CLIENTS_NODE="$CLIENTS_NODE" TOKENIZERS_PARALLELISM=false \
    "$CLIENTS/bin/python" -m pytest -q -p no:cacheprovider -o tmp_path_retention_policy=failed -rs --junitxml=build/reports/clients.xml tests/clients
}

# Compares the APIs with the vendors' schemas, and docs/openapi.json with the server.
test_conform() {
  need_conform
  say "Testing with llm-comply and schemathesis"
  QUIRE_BINARY="$PWD/build/release/quire" "$CONFORM/bin/python" -m pytest -q -p no:cacheprovider -o tmp_path_retention_policy=failed -rs \
    --junitxml=build/reports/conform.xml tests/conform
}

# Runs complete sessions of agent clients. Prints the table in docs/clients.md.
test_agents() {
  need_agents
  say "Testing with Claude Code, Codex, opencode, qwen-code, aider and mini-swe-agent"
  cmake --build build/release --target quire_scripted_server >/dev/null
  QUIRE_SCRIPTED_SERVER="$PWD/build/release/quire_scripted_server" QUIRE_AGENTS_NODE="$AGENTS/node" QUIRE_AGENTS_PYTHON="$AGENTS" \
    "$VENV/bin/python" -m pytest -q -p no:cacheprovider -o tmp_path_retention_policy=failed -rs --junitxml=build/reports/agents.xml tests/agents
}

# stage NAME COMMAND...: runs one stage of a long run; report_stages prints how long each stage took.
STAGES=()
stage() {
  local name="$1" start=$SECONDS
  shift
  STAGES+=("$name: failed")
  "$@"
  STAGES[-1]="$(printf '%5d s  %s' $((SECONDS - start)) "$name")"
}

report_stages() {
  local status=$?
  trap - EXIT
  [ -z "$HAS_FAILED" ] || status=1
  say "Report"
  local reports=(build/reports/*.xml)
  if [ -e "${reports[0]}" ]; then python3 tools/dev/report.py "${reports[@]}" || status=1; fi
  printf '%s\n' "${STAGES[@]}" "$(printf '%5d s  in all' "$SECONDS")" >&2
  if [ "$EXTENT" = ci ]; then
    local left=""
    [ ${#LEFT_OUT[@]} -eq 0 ] || left=$(printf '%s, ' "${LEFT_OUT[@]}")
    printf 'left out in this turn: %s\n' "${left:+${left%, }}${left:-nothing}" >&2
  fi
  exit "$status"
}

cmd_test() {
  local sanitizer="" filter=()
  while [ $# -gt 0 ]; do
    case "$1" in
      --asan | --tsan) sanitizer="${1#--}" ;;
      --all | --ci) EXTENT="${1#--}" ;;
      -R) filter=(-R "${2:?-R needs a regular expression}"); shift ;;
      -*) die "test: unknown argument '$1'; ./dev test --help lists them" ;;
      *) ROOMS+=("$1") ;;
    esac
    shift
  done
  if [ -n "$EXTENT" ] && [ -n "$sanitizer${filter[*]}${ROOMS[*]}" ]; then
    die "test: --$EXTENT runs everything, sanitizers included; leave the other arguments out"
  fi
  need_apt $APT_BUILD $APT_TEST
  [ -z "$EXTENT$sanitizer" ] || need_apt $APT_SANITIZE
  need_model
  need_vocabs
  export QUIRE_TEST_MODEL="$MODEL" QUIRE_TEST_VOCABS="$VOCABS"
  export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
  rm -rf build/reports
  mkdir -p build/reports
  trap report_stages EXIT
  if [ -n "$sanitizer${filter[*]}${ROOMS[*]}" ]; then
    stage "C++ suites" test_preset "${sanitizer:-release}" "${filter[@]}"
    return 0
  fi
  # Runs only some rounds of the expensive random tests. --all, and runs of selected rooms, run all rounds.
  [ "$EXTENT" = all ] || export QUIRE_TEST_ROUNDS="${QUIRE_TEST_ROUNDS:-20}"
  case "$EXTENT" in
    "") export QUIRE_FUZZ_SECONDS="${QUIRE_FUZZ_SECONDS:-5}" ;;
    ci) export QUIRE_FUZZ_SECONDS="${QUIRE_FUZZ_SECONDS:-10}" ;;
  esac
  # the corpora are changed differently for each commit; a failure prints its seed
  [ "$EXTENT" != ci ] || export QUIRE_FUZZ_SEED="${QUIRE_FUZZ_SEED:-$(git rev-list --count HEAD 2>/dev/null || echo 1)}"
  stage "C++ suites" test_preset release
  if [ "$EXTENT" = all ] || { [ "$EXTENT" = ci ] && is_turn 0; }; then stage "fuzzers under ASan" test_fuzzers asan; else stage "fuzzers" test_fuzzers release; fi
  need_python test
  if [ "$EXTENT" = all ]; then need_oracle; need_promtool; fi
  stage "Python suites" test_python
  [ -z "$EXTENT" ] || test_more "$EXTENT"
}

# Stages that take too long for every run of --ci take turns, so that each run takes much less than an hour. The turn is the number of
# commits modulo CI_TURNS. QUIRE_CI_ROTA=0,3 runs these turns, QUIRE_CI_ROTA=all runs all turns.
CI_TURNS=6

# is_turn N: returns whether this run takes turn N.
is_turn() {
  local commits
  commits=$(git rev-list --count HEAD 2>/dev/null || echo 0)
  [[ "${QUIRE_CI_ROTA:-}" == all || ",${QUIRE_CI_ROTA:-$((commits % CI_TURNS))}," == *",$1,"* ]]
}

# stage_in_turn TURN NAME COMMAND...: runs the stage if this run takes the turn; otherwise the report lists the stage as left out.
stage_in_turn() {
  local turn="$1"
  shift
  if is_turn "$turn"; then stage "$@"; else LEFT_OUT+=("$1 (turn $turn)"); fi
}
LEFT_OUT=()

# The rooms with classes that several threads share. The HTTP server is not included, because it has one thread.
readonly THREADED_ROOMS=(base log net engine runtime/tier runtime/remote runtime/transport)

# test_rooms PRESET ROOM...: runs the suites of these rooms.
test_rooms() {
  local preset="$1"
  shift
  ROOMS=("$@")
  test_preset "$preset"
  ROOMS=()
}

build_with_gcc() {
  CMAKE_FLAGS=(-DQUIRE_BUILD_TESTS=ON -DQUIRE_BUILD_BENCH=ON)
  configure_and_build gcc-check
  CMAKE_FLAGS=(-DQUIRE_BUILD_TESTS=ON)
}

# test_more ci|all: runs the tests that are too slow for every edit.
test_more() {
  if [ "$1" = ci ]; then
    stage "lint without clang-tidy" lint_text
    is_turn 0 || LEFT_OUT+=("fuzzers under ASan (turn 0)")
    stage_in_turn 0 "core under ASan and UBSan" test_rooms asan core
    # Checks that everything, including benchmarks, compiles with g++. The build is neither optimized nor run; --all does both.
    stage_in_turn 1 "g++ 12 build" build_with_gcc
    stage_in_turn 2 "rooms with threads under TSan" test_rooms tsan "${THREADED_ROOMS[@]}"
    stage_in_turn 3 "server under ASan and UBSan" test_rooms asan server
    # Packages of another architecture are not available everywhere.
    if ! is_turn 4 || try_apt $APT_AARCH64; then
      stage_in_turn 4 "aarch64 kernels under qemu" test_aarch64
    else
      LEFT_OUT+=("aarch64 kernels under qemu (its packages could not be installed)")
    fi
    stage_in_turn 5 "clang-tidy" lint_tidy
    return 0
  fi
  stage "lint" cmd_lint --deep
  need_apt $APT_ALL
  stage "g++ 12 suites" test_preset gcc
  stage "ASan and UBSan" test_preset asan
  stage "TSan" test_preset tsan
  stage "aarch64 under qemu" test_aarch64 base memory core_kv
  stage "mutants of the core" cmd_mutants
  stage "mutants of the other rooms" cmd_mutants --room all
  stage "vLLM beside quire" ./dev oracle fuzz --scenarios 2000
  stage "vLLM beside quire, with its grammars" ./dev oracle fuzz --scenarios 1000 --profile grammar
  stage "vLLM's own tests" ./dev oracle tests
  stage "other clients" test_clients
  stage "agents' loops" test_agents
  stage "APIs beside the vendors' schemas" test_conform
  stage "docs as a site" cmd_docs
  stage "docs in a browser" "$VENV/bin/python" tools/docs_check.py
  stage "soak" "$VENV/bin/python" tools/soak.py --binary build/release/quire --model "$MODEL"
  stage "prefill and decode apart, killed" "$VENV/bin/python" tools/apart_soak.py --binary build/release/quire --model "$MODEL" --requests 200 --kills 40
  stage "chat page in a browser" "$VENV/bin/python" tools/browser_check.py --binary build/release/quire --model "$MODEL" \
    --axe "$CLIENTS_NODE/node_modules/axe-core/axe.min.js"
  stage "dashboard in a browser" "$VENV/bin/python" tools/dashboard_check.py --binary build/release/quire --model "$MODEL" \
    --axe "$CLIENTS_NODE/node_modules/axe-core/axe.min.js"
}

cmd_bench() {
  local name="${1:-serve}"
  [ $# -gt 0 ] && shift
  case "$name" in
    kernel | scheduler | trace | journal | checkpoint | watch | curve_cost | copy | tier | ledger | steps | load)
      if [ "$name" = scheduler ] && [ "${1:-}" = --vllm ]; then
        use_oracle "${2:?--vllm needs a version}"
        shift 2
        need_oracle
        QUIRE_VLLM_PYTHON="$ORACLE/bin/python"
      fi
      CMAKE_FLAGS=(-DQUIRE_BUILD_BENCH=ON)
      grep -qs 'QUIRE_BUILD_BENCH:BOOL=ON' build/release/CMakeCache.txt || rm -f build/release/build.ninja
      configure_and_build release "${name}_bench"
      [ "$name" = scheduler ] && [ -n "$(vllm_python)" ] || exec "build/release/${name}_bench" "$@"
      say "Comparing with vLLM's scheduler, in its Python"
      with_package
      configure_and_build release quire_python quire_python_files
      PYTHONPATH="$PWD/build/release/python" exec "$(vllm_python)" bench/vllm_scheduler.py --native build/release/scheduler_bench "$@" ;;
    policies)
      CMAKE_FLAGS=(-DQUIRE_BUILD_BENCH=ON)
      grep -qs 'QUIRE_BUILD_BENCH:BOOL=ON' build/release/CMakeCache.txt || rm -f build/release/build.ninja
      configure_and_build release policy_bench
      exec python3 bench/policies.py --binary build/release/policy_bench "$@" ;;
    what_if)
      configure_and_build release quire
      exec python3 bench/what_if.py "$@" ;;
    curve)
      configure_and_build release quire
      exec python3 bench/curve.py "$@" ;;
    agents)
      CMAKE_FLAGS=(-DQUIRE_BUILD_BENCH=ON)
      grep -qs 'QUIRE_BUILD_BENCH:BOOL=ON' build/release/CMakeCache.txt || rm -f build/release/build.ninja
      configure_and_build release agents_bench
      exec python3 bench/agents.py --binary build/release/agents_bench "$@" ;;
    hash)
      CMAKE_FLAGS=(-DQUIRE_BUILD_BENCH=ON)
      grep -qs 'QUIRE_BUILD_BENCH:BOOL=ON' build/release/CMakeCache.txt || rm -f build/release/build.ninja
      configure_and_build release hash_bench
      need_python test
      say "Hashing in Python, for comparison"
      # shellcheck disable=SC2046  # one argument per mode
      exec build/release/hash_bench $("$VENV/bin/python" bench/hash_peer.py) ;;
    tokenize)
      CMAKE_FLAGS=(-DQUIRE_BUILD_BENCH=ON)
      grep -qs 'QUIRE_BUILD_BENCH:BOOL=ON' build/release/CMakeCache.txt || rm -f build/release/build.ninja
      configure_and_build release tokenize_bench
      need_vocabs
      exec build/release/tokenize_bench "$VOCABS" "$@" ;;
    serve)
      configure_and_build release quire
      need_model
      need_python test
      exec "$VENV/bin/python" bench/serve.py --binary build/release/quire --model "$MODEL" "$@" ;;
    hostile)
      configure_and_build release quire
      need_model
      need_python test
      exec "$VENV/bin/python" bench/hostile.py --binary build/release/quire --model "$MODEL" "$@" ;;
    schemas)
      configure_and_build release quire
      need_model
      need_python test
      exec "$VENV/bin/python" bench/schemas.py --binary build/release/quire --model "$MODEL" "$@" ;;
    disk)
      need_apt fio
      CMAKE_FLAGS=(-DQUIRE_BUILD_BENCH=ON)
      grep -qs 'QUIRE_BUILD_BENCH:BOOL=ON' build/release/CMakeCache.txt || rm -f build/release/build.ninja
      configure_and_build release tier_bench
      exec python3 bench/disk.py "$@" ;;
    step)
      CMAKE_FLAGS=(-DQUIRE_BUILD_BENCH=ON)
      grep -qs 'QUIRE_BUILD_BENCH:BOOL=ON' build/release/CMakeCache.txt || rm -f build/release/build.ninja
      configure_and_build release step_bench
      need_model
      [[ "${1:-}" == *[!0-9,]* ]] || set -- "$MODEL" "$@"
      exec build/release/step_bench "$@" ;;
    routers)
      configure_and_build release quire
      need_model
      need_routers
      exec "$ROUTERS/bin/python" bench/routers.py --binary build/release/quire --model "$MODEL" "$@" ;;
    pictures)
      configure_and_build release quire
      exec python3 bench/pictures.py --binary build/release/quire --model build/bench/vision "$@" ;;
    transcribe)
      configure_and_build release quire
      exec python3 bench/transcribe.py --binary build/release/quire "$@" ;;
    company | field | flags | tiers | break_even | sessions | structured | lora | drafts | answers | start | what_if_own)
      configure_and_build release quire
      need_model
      exec python3 "bench/$name.py" --binary build/release/quire --model "$MODEL" "$@" ;;
    *) die "bench: unknown benchmark '$name'; ./dev bench --help lists them" ;;
  esac
}

# Puts small errors into the core and checks whether its suites detect them (tools/mutants).
cmd_mutants() {
  need_apt $APT_BUILD $APT_TEST
  need_python test
  need_vocabs
  need_model
  # C++ tests run without the real model: a mutant runs in each test that reaches it, and the model's tests would take most of the time.
  # Python tests of the server need the model.
  QUIRE_TEST_VOCABS="$VOCABS" QUIRE_MUTANT_MODEL="$MODEL" QUIRE_TEST_ROUNDS="${QUIRE_TEST_ROUNDS:-5}" PYTHONPATH=tools \
    "$VENV/bin/python" -m mutants "$@"
}

# Compares the core with vLLM 0.19.0, with tools/oracle; see docs/oracle.md.
cmd_oracle() {
  if [ "${1:-}" = --vllm ]; then use_oracle "${2:?--vllm needs a version}"; shift 2; fi
  case "${1:-}" in
    setup)
      need_oracle
      say "vLLM $ORACLE_VERSION is ready in $ORACLE" ;;
    fuzz | replay | survey | coverage | record)
      need_oracle
      case " $* " in *" grammar "*) need_model ;; esac
      oracle_package "$@"
      PYTHONHASHSEED=0 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false QUIRE_ORACLE_MODEL="$MODEL" \
        PYTHONPATH="$PWD/tools:$PWD/build/release/python" exec "$ORACLE/bin/python" -m oracle "$@" ;;
    tests)
      shift
      need_oracle
      need_vllm_tests
      oracle_package "$@"
      PYTHONHASHSEED=0 HF_HUB_OFFLINE=1 PYTHONPATH="$PWD/tools:$PWD/build/release/python:$VLLM_TESTS/packages" \
        exec "$ORACLE/bin/python" -m vllm_tests --source "$VLLM_TESTS" "$@" ;;
    *) die "oracle: setup, fuzz, replay, survey, coverage, record or tests; ./dev oracle --help describes them" ;;
  esac
}

# Builds quire's package, which is one side of every comparison.
oracle_package() {
  case " $* " in *" --help "*) return 0 ;; esac
  with_package
  configure_and_build release quire_python quire_python_files
}

cmd_lint() {
  case "${1:-}" in "" | --deep) ;; *) die "lint: unknown argument '$1'; only --deep is known" ;; esac
  lint_text
  lint_tidy "$@"
}

# The part of lint that compiles nothing.
lint_text() {
  need_apt $APT_BUILD $APT_TEST $APT_LINT
  say "Include rules, imports and names in the docs"
  python3 tools/check_includes.py .
  python3 tools/check_imports.py .
  python3 tools/check_docs.py .
  python3 tools/check_words.py
  say "clang-format"
  # an archive of the tree has no history, so files are listed by folder
  { git ls-files '*.h' '*.cpp' 2>/dev/null || find src include tests bench examples python tools -name '*.h' -o -name '*.cpp'; } |
    xargs -d '\n' clang-format-19 --dry-run -Werror
  say "ruff"
  need_python lint
  "$VENV/bin/ruff" check -q --no-cache --select E9,F --per-file-ignores '__init__.py:F401' bench python tests tools
}

# The static analyzer takes twice the time of all other checks together, so it runs only with --deep.
lint_tidy() {
  local checks=-clang-analyzer-*
  [ "${1:-}" != --deep ] || checks=""
  say "clang-tidy${1:+, with the static analyzer}"
  with_package
  # Uses a unity build, because headers take most of the time. Uses neither a compiler cache nor precompiled headers, because clang-tidy
  # needs the plain commands.
  want_llguidance
  cmake --preset lint "${CMAKE_FLAGS[@]}" >"$(log_file cmake-lint)"
  python3 tools/dev/lint_units.py build/lint/compile_commands.json |
    xargs -P "$JOBS" -n 1 clang-tidy-19 -p build/lint --quiet --checks="$checks" 2> >(grep -vE 'warnings? generated' >&2)
}

# Builds packages that install without a compiler.
cmd_package() {
  source tools/dev/package.sh
  make_packages "$@"
}

# Builds the site of docs/.
cmd_docs() {
  source tools/dev/docs.sh
  build_docs "$@"
}

# processor_features [CPUINFO]: prints the instruction sets that kernels use and this processor supports.
processor_features() {
  local cpuinfo="${1:-/proc/cpuinfo}" feature found=""
  for feature in avx2 avx_vnni avx512f avx512_vnni avx512_bf16 amx_int8 amx_bf16 asimddp i8mm bf16; do
    ! grep -m1 -E '^(flags|Features)' "$cpuinfo" | grep -qw "$feature" || found+=" $feature"
  done
  echo "${found:- no AVX2 and no NEON dot products: plain kernels}"
}

# build_state: prints whether build/release/quire is newer than its sources.
build_state() {
  if [ ! -x build/release/quire ]; then echo "not built yet"
  elif ninja -C build/release -n quire 2>/dev/null | grep -q 'no work to do'; then echo "$(build/release/quire --version), up to date"
  else echo "$(build/release/quire --version), older than its sources: ./dev build"
  fi
}

cmd_doctor() {
  local lacking
  echo "system      $(. /etc/os-release && echo "$PRETTY_NAME"), $(uname -m), $(nproc) cores, $(awk '/MemTotal/ {printf "%d", $2 / 1048576}' /proc/meminfo) GiB"
  echo "processor  $(processor_features)"
  if command -v dpkg-query >/dev/null; then
    lacking=$(missing_packages $APT_BUILD $APT_TEST | tr '\n' ' ')
    echo "packages    ${lacking:+missing: }${lacking:-all installed}"
  else
    echo "packages    ./dev installs Debian 12 packages, and this system has no dpkg: docs/install.md"
  fi
  echo "compiler    $(clang++-19 --version 2>/dev/null | head -n 1 || echo missing)"
  echo "model       $([ -f "$MODEL" ] && echo "$MODEL" || echo 'not fetched yet')"
  echo "binary      $(build_state)"
}

cmd_clean() {
  rm -rf build dist
  [ "${1:-}" != --all ] || rm -rf "$CACHE"
}
