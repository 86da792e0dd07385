#pragma once
// How blocks are named.
#include <cstdint>

namespace quire {

// vLLM's prefix_caching_hash_algo, and `canonical`: SHA-256 over an encoding of ours in which every field is tagged.
// The xxhash modes give 16 bytes and are not safe against a client that looks for collisions; all others give 32.
enum class HashAlgorithm : std::uint8_t { canonical, sha256, sha256_cbor, xxhash, xxhash_cbor };

}  // namespace quire
