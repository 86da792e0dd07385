#pragma once
// XXH3, 128 bits wide: fast and not cryptographic. Present where libxxhash was found when the program was built.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace quire {

using Xxh128Digest = std::array<std::uint8_t, 16>;

// Whether this build has it; xxh3_128 must not be called where it is false.
bool xxhash_available();

// The canonical (big-endian) form, as xxhash's tools and bindings print it.
Xxh128Digest xxh3_128(std::span<const std::byte> bytes);

}  // namespace quire
