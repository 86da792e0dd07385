#pragma once
// NaiveKv is a KV manager for one group with full attention, written as simply as possible with lists and maps. It uses the content instead
// of hashes, so it cannot share a hashing mistake with the real manager.
#include <algorithm>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/ids.h"

namespace quire::test {

class NaiveKv {
 public:
  using Name = std::string;  // everything that a block's content depends on
  struct Sequence {
    std::vector<std::uint32_t> blocks;
    std::size_t num_cached = 0;
  };

  NaiveKv(std::uint32_t num_blocks, std::uint32_t block_size, bool caching)
      : block_size_(block_size), caching_(caching), refs_(num_blocks), named_(num_blocks) {
    for (std::uint32_t i = 1; i < num_blocks; ++i) free_.push_back(i);
  }

  // Returns the names of the full blocks.
  std::vector<Name> names(const std::vector<TokenId>& tokens, const std::string& salt) const {
    std::vector<Name> result;
    Name name = "salt=" + salt + ";";
    for (std::size_t i = 0; i + block_size_ <= tokens.size(); i += block_size_) {
      for (std::size_t j = i; j < i + block_size_; ++j) name += std::to_string(tokens[j]) + ",";
      result.push_back(name);
    }
    return result;
  }

  std::vector<std::uint32_t> find_prefix(const std::vector<TokenId>& tokens, const std::string& salt) const {
    std::vector<std::uint32_t> hit;
    if (!caching_) return hit;
    for (const Name& name : names(tokens, salt)) {
      const auto found = cached_.find(name);
      if (found == cached_.end() || (hit.size() + 1) * block_size_ > tokens.size() - 1) break;
      hit.push_back(found->second.front());
    }
    return hit;
  }

  // Returns whether the block of the next token exists and another request holds it too; it must then be copied.
  bool writes_shared(const Sequence& sequence, std::size_t num_computed) const {
    const std::size_t place = num_computed / block_size_;
    return place < sequence.blocks.size() && refs_[sequence.blocks[place]] > 1;
  }

  // Makes a child that holds the blocks of the first num_computed tokens.
  Sequence fork(const Sequence& parent, std::size_t num_computed) {
    Sequence child;
    for (std::size_t i = 0; i * block_size_ < num_computed; ++i) {
      child.blocks.push_back(parent.blocks[i]);
      ++refs_[parent.blocks[i]];
    }
    child.num_cached = caching_ ? num_computed / block_size_ : 0;
    return child;
  }

  std::size_t missing(const Sequence& sequence, const std::vector<std::uint32_t>& hit, std::size_t num_tokens,
                      std::size_t num_computed) const {
    const std::size_t required = (num_tokens + block_size_ - 1) / block_size_;
    const std::size_t held = sequence.blocks.size() + hit.size();
    std::size_t take = (required > held ? required - held : 0) + (writes_shared(sequence, num_computed) ? 1 : 0);
    for (std::uint32_t block : hit) take += refs_[block] == 0 ? 1 : 0;
    return take > free_.size() ? take - free_.size() : 0;
  }

  // Caches the full blocks of the first num_tokens tokens.
  void cache(Sequence& sequence, std::size_t num_tokens, const std::vector<TokenId>& tokens, const std::string& salt) {
    const std::vector<Name> all = caching_ ? names(tokens, salt) : std::vector<Name>{};
    while (caching_ && (sequence.num_cached + 1) * block_size_ <= num_tokens) {
      const std::size_t i = sequence.num_cached++;
      cached_[all[i]].push_back(sequence.blocks[i]);
      named_[sequence.blocks[i]] = true;
    }
  }

  struct Copy {
    std::uint32_t source = 0, destination = 0;
    friend bool operator==(const Copy&, const Copy&) = default;
  };

  // `num_tokens` counts computed tokens, including the hit, and new tokens. Copies are appended to `copies`.
  bool allocate(Sequence& sequence, const std::vector<std::uint32_t>& hit, std::size_t num_tokens, std::size_t num_computed,
                const std::vector<TokenId>& tokens, const std::string& salt, std::vector<Copy>& copies) {
    if (missing(sequence, hit, num_tokens, num_computed) > 0) return false;
    own(sequence, num_computed, copies);
    for (std::uint32_t block : hit) {
      if (refs_[block]++ == 0) free_.remove(block);
      sequence.blocks.push_back(block);
    }
    sequence.num_cached += hit.size();
    while (sequence.blocks.size() * block_size_ < num_tokens) sequence.blocks.push_back(pop());
    cache(sequence, std::min(num_tokens, tokens.size()), tokens, salt);
    return true;
  }

  void free(Sequence& sequence) {
    for (auto block = sequence.blocks.rbegin(); block != sequence.blocks.rend(); ++block)
      if (--refs_[*block] == 0) free_.push_back(*block);
    sequence = {};
  }

  bool reset() {
    if (free_.size() + 1 != refs_.size()) return false;
    cached_.clear();
    named_.assign(named_.size(), false);
    return true;
  }

  std::vector<std::uint32_t> free_queue() const { return {free_.begin(), free_.end()}; }
  std::uint32_t refs(std::uint32_t block) const { return refs_[block]; }
  std::size_t num_cached_blocks() const {
    std::size_t count = 0;
    for (const auto& [name, blocks] : cached_) count += blocks.size();
    return count;
  }

 private:
  // Makes the block of the next token private before the token is written.
  void own(Sequence& sequence, std::size_t num_computed, std::vector<Copy>& copies) {
    const std::size_t place = num_computed / block_size_;
    if (place >= sequence.blocks.size()) return;
    std::uint32_t& block = sequence.blocks[place];
    if (writes_shared(sequence, num_computed)) {
      --refs_[block];
      copies.push_back({block, pop()});
      block = copies.back().destination;
    } else {
      forget(block);
    }
  }

  std::uint32_t pop() {
    const std::uint32_t block = free_.front();
    free_.pop_front();
    forget(block);
    refs_[block] = 1;
    return block;
  }

  void forget(std::uint32_t block) {
    if (!named_[block]) return;
    named_[block] = false;
    for (auto entry = cached_.begin(); entry != cached_.end();) {
      entry->second.remove(block);
      entry = entry->second.empty() ? cached_.erase(entry) : std::next(entry);
    }
  }

  std::uint32_t block_size_;
  bool caching_;
  std::list<std::uint32_t> free_;
  std::vector<std::uint32_t> refs_;
  std::vector<bool> named_;
  std::map<Name, std::list<std::uint32_t>> cached_;  // first inserted first
};

inline std::vector<std::uint32_t> values(std::span<const BlockId> blocks) {
  std::vector<std::uint32_t> result;
  for (BlockId block : blocks) result.push_back(block.value);
  return result;
}

}  // namespace quire::test
