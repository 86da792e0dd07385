#pragma once
// NaiveCache is the KV-cache manager written as simply as possible with lists and maps. It uses the text of all tokens up to a block's end
// instead of hashes. It finds a prefix hit by trying all lengths from the longest down against the definition of a hit, not by vLLM's
// scans.
#include <algorithm>
#include <cstdint>
#include <list>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "quire/base/ids.h"

namespace quire::test {

enum class NaiveKind { full, window, chunked, mamba_all, mamba_align };

struct NaiveGroup {
  NaiveKind kind = NaiveKind::full;
  long size = 4;   // tokens per block
  long width = 0;  // tokens per window or chunk
  long spec = 0;   // speculative blocks
  friend bool operator==(const NaiveGroup&, const NaiveGroup&) = default;
};

// Flags that correspond to DecisionRules.
struct NaiveRules {
  bool hits_first = false;
  bool unhashed_first = false;
  bool passed_nothing = false;
};

class NaiveCache {
 public:
  using Blocks = std::vector<std::uint32_t>;
  struct Sequence {
    std::vector<Blocks> blocks;
    std::vector<std::optional<long>> cached;
    std::vector<std::optional<long>> last_state;
    std::vector<bool> running;
  };
  struct Hit {
    std::vector<Blocks> groups;
    long tokens = 0;
    bool shared = true;
  };
  struct Demand {
    long computed = 0, fresh = 0, hit = 0, lookahead = 0, external = 0;
    bool delay = false;
    long unsure = 0;
  };

  NaiveCache(std::uint32_t num_blocks, std::vector<NaiveGroup> groups, bool caching, bool eagle, long max_len, const NaiveRules& rules = {})
      : groups_(std::move(groups)), caching_(caching), eagle_(eagle), rules_(rules), max_len_(max_len), refs_(num_blocks, 0) {
    for (std::uint32_t i = 1; i < num_blocks; ++i) free_.push_back(i);
    for (const NaiveGroup& group : groups_) alignment_ = std::lcm(alignment_, group.size);
  }

  Sequence sequence() const {
    const std::size_t n = groups_.size();
    return {std::vector<Blocks>(n), std::vector<std::optional<long>>(n), std::vector<std::optional<long>>(n), std::vector<bool>(n)};
  }

  void step() { fresh_names_.clear(); }

  Hit find(const std::vector<TokenId>& tokens) {
    Hit hit;
    hit.groups.resize(groups_.size());
    if (!caching_) return hit;
    long left = static_cast<long>(tokens.size()) - 1;
    const bool full_first = std::ranges::any_of(groups_, [](const NaiveGroup& group) { return group.kind == NaiveKind::full; });
    const std::vector<NaiveGroup> kinds = distinct();
    for (bool first = true;; first = false) {
      long now = left;
      for (const NaiveGroup& kind : kinds)
        if (kind.kind == NaiveKind::full && !first)
          now = now / kind.size * kind.size;
        else
          now = find_kind(kind, tokens, now, hit);
      const bool shrunk = now < left;
      left = now;
      if (!shrunk || kinds.size() == 1 || (kinds.size() == 2 && full_first)) break;
    }
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (groups_[g].kind == NaiveKind::full) hit.groups[g].resize(static_cast<std::size_t>(left / groups_[g].size));
      hit.shared = hit.shared && hit.groups[g].empty();
    }
    hit.tokens = left;
    return hit;
  }

  bool fits(const Sequence& sequence, const std::vector<TokenId>& tokens, const Hit& hit, const Demand& demand) const {
    const long all = std::min(static_cast<long>(tokens.size()), max_len_);
    return needed(sequence, hit, all, all, std::min(demand.computed + demand.hit + demand.external, max_len_)) <=
           static_cast<long>(free_.size());
  }

  bool allocate(Sequence& sequence, const std::vector<TokenId>& tokens, const Hit& hit, const Demand& demand) {
    const long local = demand.computed + demand.hit;
    const long total = std::min(local + demand.external, max_len_);
    const long main = total + demand.fresh;
    const long slots = std::min(main + demand.lookahead, max_len_);
    skip(sequence, std::max(total - demand.unsure, 0L));
    if (needed(sequence, hit, slots, main, local + demand.external) > static_cast<long>(free_.size())) return false;
    std::vector<long> sizes(groups_.size());  // including blocks that will be loaded
    for (std::size_t g = 0; g < groups_.size() && (!hit.shared || demand.external > 0); ++g) {
      sizes[g] = attach(g, sequence, hit.groups[g], local, demand.external);
      if (!rules_.hits_first) grow(sequence.blocks[g], sizes[g]);
    }
    for (std::size_t g = 0; g < groups_.size(); ++g) grow(sequence.blocks[g], sizes[g]);
    for (std::size_t g = 0; g < groups_.size(); ++g) extend(g, sequence, slots, main);
    if (!demand.delay) cache(sequence, tokens, std::min(main, static_cast<long>(tokens.size())));
    return true;
  }

  void cache(Sequence& sequence, const std::vector<TokenId>& tokens, long num_tokens) {
    for (std::size_t g = 0; g < groups_.size() && caching_; ++g) {
      const long end = num_tokens / groups_[g].size;
      for (long i = sequence.cached[g].value_or(0); i < end; ++i) {
        const std::uint32_t block = sequence.blocks[g][static_cast<std::size_t>(i)];
        if (block != 0) {
          const std::string name = name_of(g, tokens, i);
          cached_[name].push_back(block);
          names_[block] = name;
          fresh_names_.insert(name);
        }
        sequence.cached[g] = i + 1;
      }
    }
  }

  void free(Sequence& sequence) {
    for (const Blocks& blocks : sequence.blocks) release(Blocks(blocks.rbegin(), blocks.rend()));
    sequence = this->sequence();
  }

  void skip(Sequence& sequence, long computed) {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      Blocks& blocks = sequence.blocks[g];
      Blocks passed;
      const long counted = is_mamba(g) ? std::max(0L, computed - groups_[g].spec) : computed;
      for (long i = std::min(floor(skipped(g, counted), groups_[g].size), static_cast<long>(blocks.size())) - 1; i >= 0; --i) {
        std::uint32_t& block = blocks[static_cast<std::size_t>(i)];
        if (block == 0) break;
        passed.push_back(std::exchange(block, 0));
      }
      release(passed);
      const long current = (counted + groups_[g].size - 1) / groups_[g].size - 1;
      if (sequence.last_state[g] && *sequence.last_state[g] < current) {
        std::uint32_t& block = blocks[static_cast<std::size_t>(*sequence.last_state[g])];
        release({std::exchange(block, 0)});
      }
    }
  }

  void evict(std::uint32_t block) {
    if (const auto name = names_.find(block); name != names_.end()) {
      cached_[name->second].remove(block);
      names_.erase(name);
    }
  }

  bool reset() {
    if (free_.size() + 1 != refs_.size()) return false;
    cached_.clear();
    names_.clear();
    return true;
  }

  Blocks free_queue() const { return {free_.begin(), free_.end()}; }
  std::uint32_t refs(std::uint32_t block) const { return refs_[block]; }
  std::size_t num_named() const { return names_.size(); }

 private:
  static long floor(long a, long b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }
  static long ceil(long a, long b) { return -floor(-a, b); }
  bool is_mamba(std::size_t g) const { return groups_[g].kind == NaiveKind::mamba_all || groups_[g].kind == NaiveKind::mamba_align; }

  std::vector<NaiveGroup> distinct() const {
    std::vector<NaiveGroup> kinds;
    for (const bool full : {true, false}) {
      for (const NaiveGroup& group : groups_)
        if ((group.kind == NaiveKind::full) == full && std::ranges::find(kinds, group) == kinds.end()) kinds.push_back(group);
    }
    return kinds;
  }

  std::string name_of(std::size_t g, const std::vector<TokenId>& tokens, long block) const {
    std::string name = std::to_string(g) + ":";
    for (long i = 0; i < (block + 1) * groups_[g].size; ++i) name += std::to_string(tokens[static_cast<std::size_t>(i)]) + ",";
    return name;
  }

  std::uint32_t lookup(std::size_t g, const std::vector<TokenId>& tokens, long block) const {
    const auto found = cached_.find(name_of(g, tokens, block));
    return found == cached_.end() || found->second.empty() ? 0 : found->second.front();
  }

  bool hits(const NaiveGroup& kind, const std::vector<TokenId>& tokens, long block) const {
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (groups_[g] == kind && lookup(g, tokens, block) == 0) return false;
    return true;
  }

  // Returns `first`: the blocks [first, end) must hit for a prefix of `end` blocks.
  long first_needed(const NaiveGroup& kind, long end, long max_tokens) const {
    switch (kind.kind) {
      case NaiveKind::full:
        return 0;
      case NaiveKind::window:
        return std::max(0L, end - std::max(1L, ceil(kind.width - 1, kind.size) + (eagle_ ? 1 : 0)));
      case NaiveKind::chunked:
        return std::min(end, max_tokens / kind.width * kind.width / kind.size);
      default:
        return end - 1;
    }
  }

  long find_kind(const NaiveGroup& kind, const std::vector<TokenId>& tokens, long max_tokens, Hit& hit) const {
    long end = max_tokens / kind.size;
    long first = 0;
    const bool counts_alignment = kind.kind == NaiveKind::window || is_state(kind);
    for (; end > 0; --end) {
      first = first_needed(kind, end, max_tokens);
      bool all = !counts_alignment || end * kind.size % alignment_ == 0;
      for (long i = first; i < end && all; ++i) all = hits(kind, tokens, i);
      if (all) break;
    }
    const bool drops = eagle_ && (kind.kind == NaiveKind::full || kind.kind == NaiveKind::window);
    long kept = end - (drops && end > 0 ? 1 : 0);
    while (kind.kind == NaiveKind::full && kept * kind.size % alignment_ != 0) --kept;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (groups_[g] == kind) {
        hit.groups[g].assign(static_cast<std::size_t>(kept), 0);
        for (long i = first; i < kept; ++i) hit.groups[g][static_cast<std::size_t>(i)] = lookup(g, tokens, i);
      }
    }
    return kept * kind.size;
  }
  static bool is_state(const NaiveGroup& kind) { return kind.kind == NaiveKind::mamba_all || kind.kind == NaiveKind::mamba_align; }

  // Returns the number of tokens that no later token needs.
  long skipped(std::size_t g, long computed) const {
    switch (groups_[g].kind) {
      case NaiveKind::full:
        return 0;
      case NaiveKind::window:
        return std::max(0L, computed - groups_[g].width + 1);
      case NaiveKind::chunked:
        return computed / groups_[g].width * groups_[g].width;
      default:
        return computed - 1;
    }
  }

  long needed(const Sequence& sequence, const Hit& hit, long slots, long main, long computed) const {
    long sum = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g)
      sum += needed_in(g, sequence, hit.groups.empty() ? Blocks{} : hit.groups[g], slots, main, computed);
    return sum;
  }

  long needed_in(std::size_t g, const Sequence& sequence, const Blocks& hit, long slots, long main, long computed) const {
    const NaiveGroup& group = groups_[g];
    const auto held = static_cast<long>(sequence.blocks[g].size());
    if (is_mamba(g) && !hit.empty() && names_.contains(hit.back()) && fresh_names_.contains(names_.at(hit.back())))
      return static_cast<long>(refs_.size()) + 1;
    if (group.kind == NaiveKind::mamba_align) {
      const long missing = ceil(main, group.size) + group.spec - static_cast<long>(hit.size()) - held;
      return (missing > 0 ? (sequence.running[g] ? 1 : 1 + group.spec) : missing) + unheld(hit, 0);
    }
    const long required = ceil(slots + (is_mamba(g) ? group.size * group.spec : 0), group.size);
    if (sequence.cached[g]) return std::max(required - held, 0L);
    const long passed = floor(skipped(g, computed), group.size);
    return std::max(required - std::max(passed, held + static_cast<long>(hit.size())), 0L) + unheld(hit, std::max(0L, passed - held));
  }

  long unheld(const Blocks& hit, long from) const {
    long count = 0;
    for (std::size_t i = static_cast<std::size_t>(from); i < hit.size(); ++i) count += hit[i] != 0 && refs_[hit[i]] == 0 ? 1 : 0;
    return count;
  }

  long attach(std::size_t g, Sequence& sequence, const Blocks& hit, long local, long external) {
    if (sequence.cached[g]) return 0;
    Blocks& blocks = sequence.blocks[g];
    const long passed_tokens = skipped(g, local + external);
    const long passed = std::max(0L, floor(passed_tokens, groups_[g].size));
    blocks.assign(static_cast<std::size_t>(passed), 0);
    for (std::size_t i = static_cast<std::size_t>(passed); i < hit.size(); ++i) {
      blocks.push_back(hit[i]);
      if (hit[i] != 0 && refs_[hit[i]]++ == 0) free_.remove(hit[i]);
    }
    sequence.cached[g] = static_cast<long>(blocks.size());
    const long total = local + external;
    const bool shortens = passed > 0 || (rules_.passed_nothing && passed_tokens > 0);
    return std::min(external, shortens ? total - passed_tokens : external) > 0 ? ceil(total, groups_[g].size) : 0;
  }

  void extend(std::size_t g, Sequence& sequence, long slots, long main) {
    const NaiveGroup& group = groups_[g];
    Blocks& blocks = sequence.blocks[g];
    if (group.kind != NaiveKind::mamba_align) {
      grow(blocks, ceil(slots + (is_mamba(g) ? group.size * group.spec : 0), group.size));
      return;
    }
    const long state = ceil(main, group.size) - 1;  // index of the running state; speculative states follow it
    const auto before = static_cast<long>(blocks.size());
    if (state + 1 + group.spec <= before) return;
    Blocks reused;
    if (sequence.running[g]) {
      sequence.last_state[g] = before - 1 - group.spec;
      for (long i = before - group.spec; i < std::min(before, state); ++i)
        reused.push_back(std::exchange(blocks[static_cast<std::size_t>(i)], 0));
    } else if (before > 0) {
      sequence.last_state[g] = before - 1;
    }
    blocks.resize(static_cast<std::size_t>(std::max(before, state)), 0);
    blocks.insert(blocks.end(), reused.begin(), reused.end());
    grow(blocks, state + 1 + group.spec);
    sequence.running[g] = true;
  }

  void grow(Blocks& blocks, long size) {
    while (static_cast<long>(blocks.size()) < size) {
      const std::uint32_t block = free_.front();
      free_.pop_front();
      evict(block);
      refs_[block] = 1;
      blocks.push_back(block);
    }
  }

  // Frees blocks together. Blocks that go to the front keep their order there.
  void release(const Blocks& blocks) {
    Blocks front;
    for (const std::uint32_t block : blocks) {
      if (block == 0 || --refs_[block] > 0) continue;
      if (rules_.unhashed_first && !names_.contains(block))
        front.push_back(block);
      else
        free_.push_back(block);
    }
    free_.insert(free_.begin(), front.begin(), front.end());
  }

  std::vector<NaiveGroup> groups_;
  bool caching_;
  bool eagle_;
  NaiveRules rules_;
  long max_len_;
  long alignment_ = 1;
  std::list<std::uint32_t> free_;
  std::vector<std::uint32_t> refs_;
  std::map<std::string, std::list<std::uint32_t>> cached_;  // first inserted first
  std::map<std::uint32_t, std::string> names_;
  std::set<std::string> fresh_names_;  // cached in this step
};

}  // namespace quire::test
