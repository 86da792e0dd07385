#pragma once
// Computes block hashes. Four algorithms give the same bytes as vLLM V1 (v0.19.0, utils/hashing.py and hash_block_tokens). The
// algorithm `canonical` is quire's, and does not depend on the serialization of a programming language.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/kv/hash/hash_input.h"
#include "quire/base/error.h"
#include "quire/base/hash_algorithm.h"
#include "quire/hash_function.h"

namespace quire {

// Parses vLLM's names, and "canonical".
Result<HashAlgorithm> parse_hash_algorithm(std::string_view name);
std::string_view to_string(HashAlgorithm algorithm);

// Returns the number of bytes of a block hash. The other bytes of a BlockHash are zero.
constexpr std::size_t hash_size(HashAlgorithm algorithm) {
  return algorithm == HashAlgorithm::xxhash || algorithm == HashAlgorithm::xxhash_cbor ? 16 : 32;
}

// Two processes that share blocks need the same algorithm and the same seed or root.
struct HashOptions {
  HashAlgorithm algorithm = HashAlgorithm::canonical;
  std::string seed;                // vLLM's PYTHONHASHSEED; the root is the digest of this text
  std::vector<std::uint8_t> root;  // replaces the seed: 1 to 32 bytes, for example random bytes
  // If set, hashes the blocks that have extra keys. The pickled bytes of such blocks depend on which Python strings are the same object,
  // which only the caller knows. Must outlive the function.
  HashFunction* extra_keys = nullptr;
};

// Errors: `unsupported` if xxhash is requested and this build does not include it; `invalid_argument` if the root is longer than 32 bytes.
Result<std::unique_ptr<HashFunction>> make_hash_function(const HashOptions& options);

// Appends the hashes of full blocks to `hashes`, beginning with the first full block that is not in `hashes`.
void hash_full_blocks(HashFunction& function, const RequestContent& content, std::uint32_t block_size, std::vector<BlockHash>& hashes);

}  // namespace quire
