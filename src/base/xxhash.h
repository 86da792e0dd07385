#pragma once
// XXH3 with 128 bits: fast and not cryptographic. A build has it if libxxhash was found.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace quire {

using Xxh128Digest = std::array<std::uint8_t, 16>;

// Returns true if this build has it; otherwise xxh3_128 must not be called.
bool xxhash_available();

// Returns the digest in the canonical (big-endian) form, as xxhash's tools and bindings print it.
Xxh128Digest xxh3_128(std::span<const std::byte> bytes);

}  // namespace quire
