# Sourced by tools/dev/setup.sh: llguidance (MIT), which constrains structured output to its grammar. It is a Rust crate, pinned by its
# digest; its lock file pins all dependencies. It is built once, into .cache/llguidance. Without it, quire is built without structured
# output.
readonly LLGUIDANCE_VERSION=1.9.1
readonly LLGUIDANCE_SHA256=04ede1356c8ee73a0d29ef573dbeb2123a1667cfc3ebfc7e2c41346a6e92c3c8
readonly LLGUIDANCE="$CACHE/llguidance"
# Debian 12's version of Rust. The crate requires 1.87, but it uses only one method of 1.87, which 1.85 has as an unstable feature.
readonly LLGUIDANCE_RUST=1.85

# Returns whether llguidance is missing and was not tried in this run.
lacks_llguidance() {
  [ "$(cat "$LLGUIDANCE/stamp" 2>/dev/null)" != "$LLGUIDANCE_VERSION" ] && [ -z "${LLGUIDANCE_TRIED:-}" ]
}

# want_llguidance: builds llguidance if it does not exist. On failure, prints one line that says what is missing. The next call tries again.
want_llguidance() {
  lacks_llguidance || return 0
  LLGUIDANCE_TRIED=yes
  rm -rf "$LLGUIDANCE"
  mkdir -p "$CACHE"
  build_llguidance || true
}

# reconfigure_for_llguidance FOLDER: makes CMake search again if a build folder was configured without llguidance, or with a removed one.
reconfigure_for_llguidance() {
  local known
  known=$(sed -n 's/^LLGUIDANCE_LIBRARY:FILEPATH=//p' "$1/CMakeCache.txt" 2>/dev/null) || return 0
  if [ "$known" = LLGUIDANCE_LIBRARY-NOTFOUND ]; then
    [ ! -e "$LLGUIDANCE/stamp" ] || rm -f "$1/build.ninja"
  elif [ -n "$known" ] && [ ! -e "$known" ]; then
    rm -f "$1/build.ninja"
  fi
}

# no_llguidance WHAT_IS_MISSING: prints one line and fails.
no_llguidance() {
  say "Without structured output: $1. The next ./dev serve, build or test tries again"
  return 1
}

# rust_at_least CARGO VERSION: returns whether this Rust has at least this version.
rust_at_least() {
  local have
  have=$("$1" --version 2>/dev/null | cut -d' ' -f2)
  [ -n "$have" ] && [ "$(printf '%s\n' "$2" "$have" | sort -V | head -n 1)" = "$2" ]
}

# Prints the cargo to use: Debian's cargo, or one that the user has installed.
find_cargo() {
  local cargo
  for cargo in /usr/bin/cargo "$(command -v cargo)"; do
    if [ -x "$cargo" ] && rust_at_least "$cargo" "$LLGUIDANCE_RUST"; then echo "$cargo"; return 0; fi
  done
  return 1
}

# made_by CARGO: prints the compiler and the build steps in this file. Two archives for which both are equal have the same bytes.
made_by() {
  "$1" --version
  sha256sum <"${BASH_SOURCE[0]}"
}

build_llguidance() (
  crate="llguidance-$LLGUIDANCE_VERSION"
  log=$(log_file llguidance)
  scratch=$(mktemp -d "$CACHE/llguidance.XXXXXX") || exit 1
  trap 'rm -rf "$scratch"' EXIT
  /usr/bin/python3 -c 'import sys, urllib.request as u; open(sys.argv[2], "wb").write(u.urlopen(sys.argv[1], timeout=20).read())' \
    "https://static.crates.io/crates/llguidance/$crate.crate" "$scratch/$crate.crate" 2>"$log" ||
    no_llguidance "crates.io does not answer: $(tail -n 1 "$log") (behind a proxy set https_proxy)" || exit 1
  echo "$LLGUIDANCE_SHA256  $scratch/$crate.crate" | sha256sum -c --status || no_llguidance "$crate.crate is not the pinned one" || exit 1
  tar xzf "$scratch/$crate.crate" -C "$scratch" || exit 1
  cargo=$(find_cargo) || { try_apt rustc-web cargo-web 2>"$log"; cargo=$(find_cargo); } ||
    no_llguidance "Rust $LLGUIDANCE_RUST or newer is missing (as root: apt-get install rustc-web cargo-web)" || exit 1
  say "Building llguidance $LLGUIDANCE_VERSION for structured output (once, a minute)"
  export CARGO_HOME="$scratch/cargo" CARGO_TARGET_DIR="$scratch/target" CARGO_PROFILE_RELEASE_DEBUG=false CARGO_BUILD_JOBS="$JOBS"
  # No optimization across crates: compiling takes a sixth less time, and masks are computed equally fast.
  export CARGO_PROFILE_RELEASE_LTO=off
  export CARGO_NET_RETRY=1 CARGO_HTTP_TIMEOUT=20 PATH="${cargo%/*}:/usr/bin:/bin"
  # The archive contains no folder name of this machine, for ./dev package. 0x1f separates the flags in this variable.
  export CARGO_ENCODED_RUSTFLAGS="--remap-path-prefix=$scratch=/llguidance"
  rust_at_least "$cargo" 1.87 ||
    export RUSTC_BOOTSTRAP=1 CARGO_ENCODED_RUSTFLAGS+=$'\x1f'"-Zcrate-attr=feature(unsigned_is_multiple_of)"
  "$cargo" fetch --manifest-path "$scratch/$crate/Cargo.toml" --locked >"$log" 2>&1 ||
    no_llguidance "the crates it is made of cannot be fetched ($log tells why; behind a proxy set https_proxy)" || exit 1
  "$cargo" rustc --manifest-path "$scratch/$crate/Cargo.toml" --release --lib --locked --offline --ignore-rust-version --crate-type staticlib \
    --no-default-features --features lark,referencing,ahash >>"$log" 2>&1 ||
    no_llguidance "llguidance does not build with $("$cargo" --version); $log tells why" || exit 1
  mkdir -p "$scratch/made/include" "$scratch/made/lib"
  # The crates that are linked into the library, with their versions and licences, for the SBOM of ./dev package.
  "$cargo" tree --manifest-path "$scratch/$crate/Cargo.toml" --locked --offline -e normal,no-proc-macro --no-default-features \
    --features lark,referencing,ahash --prefix none --format '{p}|{l}' >"$scratch/crates" 2>>"$log" || no_llguidance "its crates cannot be listed; $log has the reason" || exit 1
  sed -E 's/ \([^)|]*\)//g' "$scratch/crates" | LC_ALL=C sort -u >"$scratch/made/crates"
  mv "$scratch/$crate/llguidance.h" "$scratch/made/include"
  mv "$scratch/target/release/libllguidance.a" "$scratch/made/lib"
  mv "$scratch/$crate/LICENSE" "$scratch/made"
  made_by "$cargo" >"$scratch/made/made-by"
  echo "$LLGUIDANCE_VERSION" >"$scratch/made/stamp"
  mv -T "$scratch/made" "$LLGUIDANCE"
)
