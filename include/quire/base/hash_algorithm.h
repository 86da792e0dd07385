#pragma once
// The algorithms with which block hashes can be computed.
#include <cstdint>

namespace quire {

// The algorithms of vLLM's prefix_caching_hash_algo, and `canonical`: SHA-256 over quire's encoding, in which every field has a type tag.
// The xxhash algorithms give 16 bytes and do not resist a client that searches for collisions; all others give 32 bytes.
enum class HashAlgorithm : std::uint8_t { canonical, sha256, sha256_cbor, xxhash, xxhash_cbor };

}  // namespace quire
