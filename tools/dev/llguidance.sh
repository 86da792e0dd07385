# Sourced by tools/dev/setup.sh: llguidance (MIT), which holds structured output to its grammar. A Rust crate, pinned by its digest, and by
# the lock file inside of it all that it is made of; built once into .cache/llguidance.
readonly LLGUIDANCE_VERSION=1.9.1
readonly LLGUIDANCE_SHA256=04ede1356c8ee73a0d29ef573dbeb2123a1667cfc3ebfc7e2c41346a6e92c3c8
readonly LLGUIDANCE="$CACHE/llguidance"

need_llguidance() {
  [ "$(cat "$LLGUIDANCE/stamp" 2>/dev/null)" != "$LLGUIDANCE_VERSION" ] || return 0
  need_apt rustc-web cargo-web
  say "Building llguidance $LLGUIDANCE_VERSION for structured output (once, a minute)"
  local scratch crate="llguidance-$LLGUIDANCE_VERSION"
  scratch=$(mktemp -d "$CACHE/llguidance.XXXXXX")
  python3 -c 'import sys, urllib.request as u; u.urlretrieve(sys.argv[1], sys.argv[2])' \
    "https://static.crates.io/crates/llguidance/$crate.crate" "$scratch/$crate.crate"
  echo "$LLGUIDANCE_SHA256  $scratch/$crate.crate" | sha256sum -c --quiet || die "llguidance's SHA-256 is not the pinned one"
  tar xzf "$scratch/$crate.crate" -C "$scratch"
  CARGO_HOME="$scratch/cargo" CARGO_TARGET_DIR="$scratch/target" CARGO_PROFILE_RELEASE_DEBUG=false PATH="/usr/bin:/bin" \
    cargo rustc --manifest-path "$scratch/$crate/Cargo.toml" --release --lib --locked --crate-type staticlib \
    --no-default-features --features lark,referencing,ahash >"$(log_file llguidance)" 2>&1 ||
    { tail -n 20 "$(log_file llguidance)" >&2; die "llguidance does not build; the whole log is in $(log_file llguidance)"; }
  mkdir -p "$LLGUIDANCE/include" "$LLGUIDANCE/lib"
  mv "$scratch/$crate/llguidance.h" "$LLGUIDANCE/include"
  mv "$scratch/target/release/libllguidance.a" "$LLGUIDANCE/lib"
  mv "$scratch/$crate/LICENSE" "$LLGUIDANCE"
  echo "$LLGUIDANCE_VERSION" >"$LLGUIDANCE/stamp"
  rm -rf "$scratch"
}
