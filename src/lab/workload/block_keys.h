#pragma once
// Computes block hashes for a workload's prompts. The core receives them (NewRequest::block_hashes), so that it finds common prefixes
// without tokens. For blocks after the given hashes, and for workloads with tokens, the core computes hashes itself (MixedHashes).
#include <cstdint>
#include <vector>

#include "quire/base/error.h"
#include "quire/hash_function.h"
#include "quire/simulation.h"

namespace quire {

// Mixes the bits of a number; a bijection (SplitMix64's finalizer).
constexpr std::uint64_t mix_bits(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// Uses 64 mixed bits instead of a digest: the simulator has no adversary, and a cryptographic hash would take most of the simulation's
// time.
class MixedHashes final : public HashFunction {
 public:
  BlockHash hash(const BlockHash* parent, const HashInput& input) override;
};

// Chains the ids of a request, so that a block's hash covers the whole prefix that ends with the block.
class BlockHasher {
 public:
  // Errors: neither block size nor id size is a multiple of the other.
  static Result<BlockHasher> create(const Workload& workload, std::uint32_t block_size);

  // Writes the hashes of the prompt's full blocks that have ids. Overwrites `names`.
  void of(const WorkloadRequest& request, std::vector<BlockHash>& names) const;
  [[nodiscard]] std::uint32_t block_size() const { return block_size_; }

 private:
  BlockHasher(const Workload& workload, std::uint32_t block_size) : workload_(&workload), block_size_(block_size) {}

  const Workload* workload_;
  std::uint32_t block_size_;
};

}  // namespace quire
