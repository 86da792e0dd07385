// A sequence holds no block (waiting, preempted), or the blocks of all its computed tokens (running). allocate moves it forward, free
// moves it back; between them it only grows. Its first num_cached_blocks are findable: by a hit (attach) or because they became full
// (cache_full_blocks). A block that becomes full while an equal one is cached already is not exchanged for it: tables only grow.
#include "core/kv/kv_manager.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

KvManager::KvManager(const KvManagerOptions& options, BlockHasher& hasher, EventSink* events)
    : options_(options), pool_(options.num_blocks, events), hasher_(hasher) {
  QUIRE_CHECK(options.block_size > 0);
  hit_.reserve(num_blocks_for(options.max_model_len));
}

double KvManager::usage() const {
  const double total = pool_.num_blocks() - 1;
  return 1.0 - pool_.num_free_blocks() / total;
}

void KvManager::reserve(KvSequence& sequence, std::uint32_t num_tokens) const {
  sequence.blocks_.reserve(num_blocks_for(num_tokens));
  if (options_.enable_prefix_caching) {
    sequence.hashes_.reserve(num_tokens / options_.block_size);
  }
}

void KvManager::extend_hashes(KvSequence& sequence, std::span<const TokenId> tokens, const ExtraKeys& extra) {
  if (!options_.enable_prefix_caching) {
    return;
  }
  auto start = static_cast<std::uint32_t>(sequence.hashes_.size()) * options_.block_size;
  for (; start + options_.block_size <= tokens.size(); start += options_.block_size) {
    const BlockHash parent = sequence.hashes_.empty() ? hasher_.root() : sequence.hashes_.back();
    sequence.hashes_.push_back(hasher_.hash(parent, block_content(tokens, extra, start, options_.block_size)));
  }
}

PrefixHit KvManager::find_prefix(const KvSequence& sequence, std::uint32_t num_known_tokens) {
  hit_.clear();
  if (!options_.enable_prefix_caching) {
    return {};
  }
  const std::size_t limit = std::min<std::size_t>((num_known_tokens - 1) / options_.block_size, sequence.hashes_.size());
  for (std::size_t i = 0; i < limit; ++i) {
    const auto block = pool_.find_cached(sequence.hashes_[i]);
    if (!block) {
      break;
    }
    hit_.push_back(*block);
  }
  return {hit_, static_cast<std::uint32_t>(hit_.size()) * options_.block_size};
}

std::uint32_t KvManager::missing_for_full_sequence(const KvSequence& sequence, const PrefixHit& hit, std::uint32_t num_known_tokens) const {
  return missing(num_blocks_to_take(sequence, hit, std::min(num_known_tokens, options_.max_model_len)));
}

std::uint32_t KvManager::allocate(KvSequence& sequence, const PrefixHit& hit, const KvDemand& demand) {
  const std::uint32_t num_computed = std::min(demand.num_computed_tokens + hit.num_tokens, options_.max_model_len);
  const std::uint32_t num_tokens = std::min(num_computed + demand.num_new_tokens, options_.max_model_len);
  if (const std::uint32_t lacking = missing(num_blocks_to_take(sequence, hit, num_tokens)); lacking > 0) {
    return lacking;
  }
  attach(sequence, hit);
  for (std::uint32_t required = num_blocks_for(num_tokens); sequence.blocks_.size() < required;) {
    sequence.blocks_.push_back(pool_.allocate());
  }
  if (options_.enable_prefix_caching) {
    cache_full_blocks(sequence, std::min(num_computed + demand.num_new_tokens, demand.num_known_tokens));
  }
  return 0;
}

void KvManager::free(KvSequence& sequence) {
  for (auto block = sequence.blocks_.rbegin(); block != sequence.blocks_.rend(); ++block) {
    pool_.release(*block);
  }
  sequence.blocks_.clear();
  sequence.num_cached_blocks_ = 0;
}

void KvManager::check_sequence(const KvSequence& sequence, std::span<std::uint32_t> holders) const {
  for (BlockId block : sequence.blocks_) {
    ++holders[block.value];
  }
  QUIRE_CHECK(sequence.num_cached_blocks_ <= sequence.blocks_.size() && sequence.num_cached_blocks_ <= sequence.hashes_.size());
  for (std::uint32_t i = 0; i < sequence.num_cached_blocks_; ++i) {
    const BlockId block = sequence.blocks_[i];
    QUIRE_CHECK(pool_.index().contains(block) && pool_.index().hash_of(block) == sequence.hashes_[i], "a cached block carries its name");
  }
}

std::uint32_t KvManager::num_blocks_to_take(const KvSequence& sequence, const PrefixHit& hit, std::uint32_t num_tokens) const {
  const auto held = static_cast<std::uint32_t>(sequence.blocks_.size() + hit.blocks.size());
  const std::uint32_t required = num_blocks_for(num_tokens);
  const auto from_free_queue = std::ranges::count_if(hit.blocks, [this](BlockId block) { return pool_.ref_count(block) == 0; });
  return (required > held ? required - held : 0) + static_cast<std::uint32_t>(from_free_queue);
}

std::uint32_t KvManager::missing(std::uint32_t num_blocks) const {
  return num_blocks > pool_.num_free_blocks() ? num_blocks - pool_.num_free_blocks() : 0;
}

void KvManager::attach(KvSequence& sequence, const PrefixHit& hit) {
  if (hit.blocks.empty()) {
    return;
  }
  QUIRE_CHECK(sequence.blocks_.empty(), "a hit comes before every other block");
  for (BlockId block : hit.blocks) {
    pool_.touch(block);
    sequence.blocks_.push_back(block);
  }
  sequence.num_cached_blocks_ = static_cast<std::uint32_t>(hit.blocks.size());
}

void KvManager::cache_full_blocks(KvSequence& sequence, std::uint32_t num_tokens) {
  for (const std::uint32_t num_full = num_tokens / options_.block_size; sequence.num_cached_blocks_ < num_full;) {
    const std::uint32_t i = sequence.num_cached_blocks_++;
    pool_.cache(sequence.blocks_[i], sequence.hashes_[i]);
  }
}

}  // namespace quire
