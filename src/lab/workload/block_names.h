#pragma once
// Names of the blocks of a workload's prompts. They are handed to the core (NewRequest::block_hashes), so that it needs no tokens to find
// what two prompts share; behind them, and where a workload has tokens, the core names blocks itself (MixedNames).
#include <cstdint>
#include <vector>

#include "quire/base/error.h"
#include "quire/hash_function.h"
#include "quire/simulation.h"

namespace quire {

// Spreads the bits of a number; a bijection (SplitMix64's finaliser).
constexpr std::uint64_t mixed(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// 64 mixed bits in place of a digest: the simulator meets no adversary, and a cryptographic hash would take longer than all the rest.
class MixedNames final : public HashFunction {
 public:
  BlockHash hash(const BlockHash* parent, const HashInput& input) override;
};

// Chains the ids of a request, so that a name stands for the whole prefix up to its block.
class BlockNames {
 public:
  // An error where neither of block size and id size is a multiple of the other.
  static Result<BlockNames> create(const Workload& workload, std::uint32_t block_size);

  // Of the full blocks of the prompt, as far as there are ids. Overwrites `names`.
  void of(const WorkloadRequest& request, std::vector<BlockHash>& names) const;
  [[nodiscard]] std::uint32_t block_size() const { return block_size_; }

 private:
  BlockNames(const Workload& workload, std::uint32_t block_size) : workload_(&workload), block_size_(block_size) {}

  const Workload* workload_;
  std::uint32_t block_size_;
};

}  // namespace quire
