# Texts of ./dev help and ./dev COMMAND --help. Durations are for two cores without a compiler cache; later runs compile only changed files.

help_dev() {
  cat <<'HELP'
usage: ./dev COMMAND [ARGUMENTS]        details and arguments: ./dev COMMAND --help

Use
  serve [MODEL] [FLAGS]   build (4 min) and serve MODEL on 127.0.0.1:8000; without MODEL, a small one that it fetches
  demo [MODEL] [FLAGS]    the same, with simulated clients and a small KV cache; open /dashboard
  package                 make wheels, a tarball and a .deb in dist/ (15 min)

Change
  build                   build everything (25 min)
  test ROOM               build and test one room (2 to 10 min); it says first how long
  test                    build and test everything (1 h)
  lint                    formats, include rules, words, clang-tidy (20 min)
  docs                    build the docs as a site (2 min)

Measure and compare
  bench [NAME]            run a benchmark (1 to 30 min); --help lists them
  oracle COMMAND          compare decisions with vLLM (2 min for 1,000 scenarios, after a setup of 20 min)
  mutants                 put errors into the code and count how many the tests notice (1 h a room)

  doctor, clean, help     what this machine has; remove what was built; this text
HELP
}

help_serve() {
  cat <<'HELP'
usage: ./dev serve [MODEL] [FLAGS]

Installs missing packages, builds quire and serves MODEL (a GGUF file or a Hugging Face folder; default: SmolLM2-135M-Instruct, which it
fetches) on 127.0.0.1:8000. The default model is served with the sampling parameters that its authors recommend. The flags of the server:
HELP
}

help_demo() {
  cat <<'HELP'
usage: ./dev demo [MODEL] [FLAGS]

Serves MODEL with simulated clients and a small KV cache, so that /dashboard has something to show. The flags:
HELP
}

help_test() {
  cat <<'HELP'
usage: ./dev test [ROOM...] [-R REGEX] [--asan | --tsan]    some C++ suites
       ./dev test [--ci | --all]                            all suites: C++, fuzzers, Python (1 h)

  ROOM...          only the C++ suites of these rooms, with all their rounds: core, runtime/kernel, server, ... (cmake/Rooms.cmake)
  -R REGEX         only the C++ tests that match
  --asan, --tsan   under sanitizers (10 to 40 min a room)
  --ci             all suites, fuzzers, lint without clang-tidy, and one of six turns, by the number of commits modulo 6 (QUIRE_CI_ROTA=all:
                   all six): 0 fuzzers and core under ASan; 1 g++ 12 build; 2 rooms with threads under TSan; 3 server under ASan;
                   4 aarch64 kernels under qemu; 5 clang-tidy. The last line names what was left out
  --all            all suites with all rounds, lint, g++ 12, ASan, TSan, aarch64, mutants, vLLM, other clients, docs, soak, browser: hours

A run ends with the skipped tests, their reasons, and the ten slowest suites.
HELP
}

help_build() {
  cat <<'HELP'
usage: ./dev build [--preset NAME]

Builds into build/NAME: release (default), debug, asan (with fuzzers), tsan, gcc, gcc-check (joins the files of a room). 25 min on two cores
without a compiler cache.
HELP
}

help_package() {
  cat <<'HELP'
usage: ./dev package [--check]

Makes wheels, a tarball, a .deb and an SBOM in dist/ (docs/install.md). --check: builds the commit twice and compares the bytes.
HELP
}

help_oracle() {
  cat <<'HELP'
usage: ./dev oracle [--vllm 0.32.0] COMMAND

Compares the core with vLLM 0.19.0 or the given version (docs/oracle.md).
  setup            install vLLM into .cache (20 min, 6 GB)
  fuzz             play random scenarios on both (2 min for 1,000); --scenarios N --profile NAME
  replay FILE      play one scenario again
  survey, coverage, record
  tests            run vLLM's own tests on quire
HELP
}

help_mutants() {
  cat <<'HELP'
usage: ./dev mutants [--room NAME] [FLAGS]

Puts errors into the core, or into another room, one at a time, and counts how many the suites notice (30 min to build, then minutes). Flags:
HELP
}

help_lint() {
  cat <<'HELP'
usage: ./dev lint [--deep]

clang-format, ruff, include rules, names in the docs, words, and clang-tidy (20 min). --deep: also the static analyzer (40 min).
HELP
}

help_docs() {
  cat <<'HELP'
usage: ./dev docs [--serve]

Builds the docs as a site in build/site, with pages from the headers (doxygen). --serve: on 127.0.0.1:8001, with changes shown as you write.
HELP
}

help_doctor() {
  echo "usage: ./dev doctor

Prints what this machine has and what is missing."
}

help_clean() {
  echo "usage: ./dev clean [--all]

Removes build/ and dist/. --all: also .cache/ (the model and the Python environments)."
}

help_bench() {
  cat <<'HELP'
usage: ./dev bench [NAME] [ARGUMENTS]    (default: serve)    results: bench/README.md

  serve                   serving speed; --against llama.cpp,vllm,openvino: next to these engines, which it installs (9 GB)
  answers                 thousands of crowded requests: replay, explanations and trace compared with each other
  start                   time from the start of a server to the first token
  step                    parts of a step, next to the machine's limits; [MODEL] [CONCURRENCY,... [IN [OUT]]]
  load                    thousands of streams around a worker that computes nothing; [STREAMS [STEP_MS [STEPS]]]
  field                   twelve public complaints about LLM servers, against quire or the server of --start
  company                 streams and short prompts next to a long prompt, by --step-time-target
  flags                   two sets of engine flags, in pairs
  hostile                 cost of bad clients for good ones
  kernel                  speed of the kernels
  scheduler               cost of the scheduler, next to vLLM's; --vllm 0.32.0: next to that version
  hash                    block hashes, next to Python
  tokenize                the hardest texts, in growing sizes
  trace, journal, watch   cost of each for the engine
  curve                   predicted hit rates of other cache sizes, compared with runs; --traces FOLDER
  curve_cost              cost of following the curve, per request
  what_if                 the simulator compared with runs of vLLM, and its speed; --traces FOLDER
  what_if_own             the simulator compared with a server on this machine
  agents                  recorded agents, by scheduling policy; --traces FOLDER
  sessions                recorded agents with and without a disk tier
  policies                hit ratios of a tier's eviction policies; --traces FOLDER
  ledger                  the ledger of a tier with a million blocks
  steps                   tiers with a worker that leaves no time
  copy                    ways to copy blocks between the pool and host memory
  tier                    the disk tier's store by block size; [FOLDER [MIB [DEPTH]]]
  disk                    the disk tier's store, next to fio
  tiers                   serving with and without a disk tier, in pairs
  break_even              loading compared with computing, by the disk's bandwidth
  structured              cost of a grammar on every request
  lora                    cost of adapters
  drafts                  cost and gain of draft tokens
  pictures                cost of images for streaming requests; --model FOLDER, which it makes
  transcribe              Whisper, next to whisper.cpp; --model FOLDER --sound WAV --rival BINARY --rival-model FILE
  routers                 Dynamo's and vLLM's routers, which receive KV cache events, in front of two servers; --traces FOLDER
  schemas                 validity of structured answers, by keyword: the JSON Schema Test Suite and schemas of real tools
HELP
}
