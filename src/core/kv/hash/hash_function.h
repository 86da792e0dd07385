#pragma once
// Computes block hashes. Four modes give the same bytes as vLLM V1 (v0.19.0, utils/hashing.py and hash_block_tokens). `canonical` is
// quire's own and independent of any language's serialization.
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

// Parses vLLM's names and "canonical".
Result<HashAlgorithm> parse_hash_algorithm(std::string_view name);
std::string_view to_string(HashAlgorithm algorithm);

// Returns the bytes of a block hash. The rest of a BlockHash is zero.
constexpr std::size_t hash_size(HashAlgorithm algorithm) {
  return algorithm == HashAlgorithm::xxhash || algorithm == HashAlgorithm::xxhash_cbor ? 16 : 32;
}

// Two processes that share blocks need the same algorithm and the same seed or root.
struct HashOptions {
  HashAlgorithm algorithm = HashAlgorithm::canonical;
  std::string seed;                // vLLM's PYTHONHASHSEED: the root is the digest of this text
  std::vector<std::uint8_t> root;  // replaces the seed: 1 to 32 bytes, random ones for example
  // If given, hashes the blocks that have extra keys: their pickled bytes depend on which Python strings are one object. Must outlive the
  // function.
  HashFunction* extra_keys = nullptr;
};

// Errors: `unsupported` if xxhash is requested and this build has none; `invalid_argument` if the root is too long.
Result<std::unique_ptr<HashFunction>> make_hash_function(const HashOptions& options);

// Appends the hashes of full blocks that have none yet. Afterwards `hashes` has one per `block_size` tokens of the content.
void hash_full_blocks(HashFunction& function, const RequestContent& content, std::uint32_t block_size, std::vector<BlockHash>& hashes);

}  // namespace quire
