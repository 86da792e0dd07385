#!/usr/bin/env bash
# Promise: a project that knows only find_package(quire) can build against an installed quire and use it; the examples do.
set -euo pipefail
cmake="$1" build="$2" compiler="$3"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$cmake" --install "$build" --prefix "$scratch/prefix" >"$scratch/install.log" || { cat "$scratch/install.log"; exit 1; }
"$cmake" -G Ninja -S "$(dirname "$0")" -B "$scratch/build" -DCMAKE_PREFIX_PATH="$scratch/prefix" -DCMAKE_CXX_COMPILER="$compiler" >"$scratch/configure.log" ||
  { cat "$scratch/configure.log"; exit 1; }
"$cmake" --build "$scratch/build"
"$scratch/build/consumer"
# The examples of the docs, and what they promise to print.
expect() { grep -qF -- "$1" "$scratch/out" || { echo "the example does not print: $1" >&2; cat "$scratch/out" >&2; exit 1; }; }
"$scratch/build/step_by_hand" >"$scratch/out"
expect "step 6:  request 3 tokens [16, 18) samples"
"$scratch/build/own_connector" >"$scratch/out"
expect "step 3: 6 tokens to compute"
"$scratch/build/explain_preemption" >"$scratch/out"
expect "step 3: request 2 is preempted: request 1 lacks 1 free block(s)"
if [ -n "${QUIRE_TEST_MODEL:-}" ]; then
  "$scratch/build/chat" "$QUIRE_TEST_MODEL" "What is the capital of France?" >"$scratch/out"
  expect "Paris"
fi
"$scratch/prefix/bin/quire" --version
