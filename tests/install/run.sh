#!/usr/bin/env bash
# Checks that a project with only find_package(quire) can build against an installed quire and use it, and that the examples build this way.
set -euo pipefail
cmake="$1" build="$2" compiler="$3"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$cmake" --install "$build" --prefix "$scratch/prefix" >"$scratch/install.log" || { cat "$scratch/install.log"; exit 1; }
"$cmake" -G Ninja -S "$(dirname "$0")" -B "$scratch/build" -DCMAKE_PREFIX_PATH="$scratch/prefix" -DCMAKE_CXX_COMPILER="$compiler" >"$scratch/configure.log" ||
  { cat "$scratch/configure.log"; exit 1; }
"$cmake" --build "$scratch/build"
expect() { grep -qF -- "$1" "$scratch/out" || { echo "the example does not print: $1" >&2; cat "$scratch/out" >&2; exit 1; }; }
# run_all SUFFIX: runs the examples of the docs and checks their output.
run_all() {
  "$scratch/build/consumer$1"
  "$scratch/build/step_by_hand$1" >"$scratch/out"
  expect "step 6:  request 3 tokens [16, 18) samples"
  "$scratch/build/own_connector$1" >"$scratch/out"
  expect "step 3: 6 tokens to compute"
  "$scratch/build/explain_preemption$1" >"$scratch/out"
  expect "step 3: request 2 is preempted: request 1 needs 1 more free block(s)"
  if [ -n "${QUIRE_TEST_MODEL:-}" ]; then
    "$scratch/build/chat$1" "$QUIRE_TEST_MODEL" "What is the capital of France?" >"$scratch/out"
    expect "Paris"
    "$scratch/build/generate$1" "$QUIRE_TEST_MODEL" "The capital of France is" >"$scratch/out"
    expect "Paris"
  fi
}
run_all ""
if [ -e "$scratch/build/consumer_shared" ]; then
  run_all _shared
  # Checks that libquire.so exports only the names of the public headers, no internals of their classes, and has a version.
  library=$(find "$scratch/prefix" -name 'libquire.so.*.*.*')
  nm -DC --defined-only "$library" | cut -d' ' -f3- >"$scratch/symbols"
  grep -q '^quire::Core::schedule(' "$scratch/symbols"
  if grep -vE '^((typeinfo( name)?|vtable) for )?quire::' "$scratch/symbols"; then echo "libquire.so exports names outside of quire::" >&2; exit 1; fi
  if grep -E '^[^(]*::(State|Impl)\b' "$scratch/symbols"; then echo "libquire.so exports internal names" >&2; exit 1; fi
  readelf -d "$library" | grep -qE 'SONAME.*libquire\.so\.[0-9]' || { echo "libquire.so has no version" >&2; exit 1; }
else
  echo "built without libquire.so (QUIRE_BUILD_SHARED)"
fi
# run_c PROGRAM: runs a program of the C API.
run_c() {
  "$1" /no/such/model.gguf 2>"$scratch/out" && { echo "$1 loads a model that does not exist" >&2; exit 1; }
  expect "/no/such/model.gguf"
  [ -n "${QUIRE_TEST_MODEL:-}" ] || return 0
  "$1" "$QUIRE_TEST_MODEL" >"$scratch/out"
  expect "Paris"
}
library=$(find "$scratch/prefix" -name libquire_c.so)
if [ -z "$library" ]; then
  echo "built without libquire_c.so (QUIRE_BUILD_C)"
elif ! compiler=$(command -v cc || command -v gcc || command -v clang); then
  echo "no C compiler: the C API was not tested"
else
  # A project in C finds the C API without the packages that the C++ libraries need.
  "$cmake" -G Ninja -S "$(dirname "$0")/c" -B "$scratch/c" -DCMAKE_PREFIX_PATH="$scratch/prefix" -DCMAKE_C_COMPILER="$compiler" >"$scratch/configure.log" ||
    { cat "$scratch/configure.log"; exit 1; }
  "$cmake" --build "$scratch/c"
  run_c "$scratch/c/answer"
  if command -v pkg-config >/dev/null; then
    export PKG_CONFIG_PATH="$(dirname "$library")/pkgconfig"
    # shellcheck disable=SC2046  # several words
    "$compiler" -std=c11 "$(dirname "$0")/../../examples/c/answer.c" $(pkg-config --cflags --libs quire) -o "$scratch/answer"
    LD_LIBRARY_PATH=$(dirname "$library") run_c "$scratch/answer"
  else
    echo "pkg-config is not installed: quire.pc was not tested"
  fi
  readelf -d "$library" | grep -qE 'SONAME.*libquire_c\.so\.0\]' || { echo "libquire_c.so has a wrong version" >&2; exit 1; }
fi
"$scratch/prefix/bin/quire" --version
