#!/bin/sh
# Checks that a library exports exactly the functions of a committed list, the ABI of the C API.
#
# Usage: check_symbols.sh LIBRARY LIST
set -eu
exported=$(nm -D --defined-only "$1" | awk '{print $2, $3}' | LC_ALL=C sort)
echo "$exported" | diff -u "$2" - || {
  echo "The exported functions differ from $2." >&2
  echo "A new function: add it to the list, and add 1 to QUIRE_C_VERSION. A function that is missing breaks programs: keep it." >&2
  exit 1
}
