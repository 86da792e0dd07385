#!/usr/bin/env bash
# Promise: a project that knows only find_package(quire) can build against an installed quire and use it.
set -euo pipefail
cmake="$1" build="$2" compiler="$3"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$cmake" --install "$build" --prefix "$scratch/prefix" >"$scratch/install.log" || { cat "$scratch/install.log"; exit 1; }
"$cmake" -G Ninja -S "$(dirname "$0")" -B "$scratch/build" -DCMAKE_PREFIX_PATH="$scratch/prefix" -DCMAKE_CXX_COMPILER="$compiler" >"$scratch/configure.log" ||
  { cat "$scratch/configure.log"; exit 1; }
"$cmake" --build "$scratch/build"
"$scratch/build/consumer"
"$scratch/prefix/bin/quire" --version
