#pragma once
// XXH3 with 128 bits, which is fast and not cryptographic. Available in builds that found libxxhash.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace quire {

using Xxh128Digest = std::array<std::uint8_t, 16>;

// Returns true if this build contains libxxhash; otherwise xxh3_128() must not be called.
bool xxhash_available();

// Returns the digest in its canonical (big-endian) form, which the xxhash tools also print.
Xxh128Digest xxh3_128(std::span<const std::byte> bytes);

}  // namespace quire
