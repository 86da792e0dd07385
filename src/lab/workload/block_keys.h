#pragma once
// Computes block hashes for a workload's prompts. The core receives the hashes (NewRequest::block_hashes) and thus finds common prefixes
// without tokens. For later blocks, and for workloads with tokens, the core computes the hashes itself (MixedHashes).
#include <cstdint>
#include <vector>

#include "quire/base/error.h"
#include "quire/hash_function.h"
#include "quire/simulation.h"

namespace quire {

// Returns a number with mixed bits. The function is a bijection (the finalizer of SplitMix64).
constexpr std::uint64_t mix_bits(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// Hashes blocks with 64 mixed bits instead of a cryptographic digest: a simulation has no adversary, and a cryptographic hash would take
// most of its time.
class MixedHashes final : public HashFunction {
 public:
  BlockHash hash(const BlockHash* parent, const HashInput& input) override;
};

// Computes chained hashes of a request's ids: the hash of a block depends on the whole prefix that ends with the block.
class BlockHasher {
 public:
  // Creates a hasher. Error: neither the block size nor the id size is a multiple of the other.
  static Result<BlockHasher> create(const Workload& workload, std::uint32_t block_size);

  // Replaces `names` by the hashes of the prompt's full blocks that have ids.
  void of(const WorkloadRequest& request, std::vector<BlockHash>& names) const;
  [[nodiscard]] std::uint32_t block_size() const { return block_size_; }

 private:
  BlockHasher(const Workload& workload, std::uint32_t block_size) : workload_(&workload), block_size_(block_size) {}

  const Workload* workload_;
  std::uint32_t block_size_;
};

}  // namespace quire
