// Derives the causes of misses from a look-up. Called once per request, on the core's thread, when it is admitted. At this time the blocks
// of its first chunk are already cached and may have evicted others. The causes are therefore derived from what was known at the look-up,
// not from what is cached now.
#include "core/explain/misses.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace quire {
namespace {

constexpr std::uint32_t kShownTokens = 8;  // tokens shown before and after the position at which a prompt diverges

class Misses {
 public:
  Misses(const RequestView& view, const LookUpResult& look_up, const BlockHistoryTable& memory, const ExplainOptions& options,
         RequestExplanation& facts)
      : view_(view), look_up_(look_up), memory_(memory), options_(options), facts_(facts) {}

  void explain(std::uint32_t begin, std::uint32_t end) {
    QUIRE_CHECK(begin <= end && facts_.num_missed == 0, "a request is explained once");
    first_ = begin;
    end_ = end;
    for (std::uint32_t token = begin; token < end;) {
      const std::uint32_t block = token / options_.block_size;
      const std::uint32_t next = std::min(end, (block + 1) * options_.block_size);
      add(of_block(block, token, next), next - token);
      token = next;
    }
  }

 private:
  [[nodiscard]] MissFact of_block(std::uint32_t block, std::uint32_t first, std::uint32_t next) const {
    MissFact fact{.first_token = first, .num_tokens = next - first};
    const std::uint32_t num_expected = look_up_.is_known ? look_up_.num_cached + look_up_.num_external : 0;
    if (first + 1 == end_ && first == first_ && num_expected >= end_)
      fact.cause = MissCause::last_token;  // all tokens were found in the cache
    else if (first < num_expected)
      fact.cause = MissCause::load_failed;
    else if (!look_up_.in_cache)
      fact.cause = MissCause::not_looked_up;
    else if (next % options_.block_size != 0)
      fact.cause = MissCause::partial_block;
    else
      judge(block, fact);
    return fact;
  }

  void judge(std::uint32_t block, MissFact& fact) const {
    const std::uint64_t key = name_of(block);
    const BlockHistory* history = memory_.find(key, look_up_.tenant);
    const bool was_stored = history != nullptr && history->num_copies > 0 && history->stored_at <= look_up_.at;
    if (was_stored) {
      fact.cause = fact.first_token + fact.num_tokens == end_ && fact.first_token == first_ ? MissCause::last_token
                   : fact.first_token > first_                                              ? MissCause::behind_a_miss
                                                                                            : MissCause::other_group;
      return;
    }
    if (history != nullptr && history->loss != Loss::none) {
      fact.cause = history->loss == Loss::evicted     ? MissCause::evicted
                   : history->loss == Loss::forgotten ? MissCause::forgotten
                                                      : MissCause::reset;
      fact.step = history->lost_step;
      fact.time_s = history->lost_s;
      fact.by = history->lost_for;
      return;
    }
    fact.cause = MissCause::never_stored;
    if (block > 0) compare(block, fact);
  }

  // Compares the block with the block that the tenant stored last after the same prefix.
  void compare(std::uint32_t block, MissFact& fact) const {
    const BlockHistory* before = memory_.find(name_of(block - 1), look_up_.tenant);
    if (before == nullptr) return;
    // The block itself may be stored by now; then the one stored before it is used.
    const bool is_own = before->last_child == name_of(block);
    const BlockHistory* sibling = memory_.find(is_own ? before->child_before : before->last_child, look_up_.tenant);
    if (sibling == nullptr || view_.tokens.size() < fact.first_token + fact.num_tokens) return;
    const std::span<const TokenId> stored = memory_.tokens_of(*sibling);
    const std::span<const TokenId> own = view_.tokens.subspan(std::size_t{block} * options_.block_size, options_.block_size);
    QUIRE_CHECK(own.size() == stored.size(), "compared blocks have the same number of tokens");
    const auto [mine, other] = std::ranges::mismatch(own, stored);
    if (mine == own.end()) return;  // the tokens are equal but the hashes differ: another image or adapter
    fact.cause = MissCause::diverged;
    const auto place = static_cast<std::uint32_t>(mine - own.begin());
    const std::uint32_t differs_at = block * options_.block_size + place;
    const std::uint32_t shown_from = differs_at - std::min(differs_at, kShownTokens);
    const auto copy = [](std::span<const TokenId> tokens) {
      const std::span<const TokenId> shown = tokens.first(std::min<std::size_t>(tokens.size(), kShownTokens));
      return std::vector<TokenId>(shown.begin(), shown.end());
    };
    fact.differs_at = differs_at;
    fact.before = copy(view_.tokens.subspan(shown_from, differs_at - shown_from));
    fact.own = copy(view_.tokens.subspan(differs_at));
    fact.stored = copy(stored.subspan(place));
  }

  // A block may consist of several hash blocks; the hash of the last one depends on the others.
  [[nodiscard]] std::uint64_t name_of(std::uint32_t block) const { return key_of_block(view_.block_hashes, block, options_).value_or(0); }

  void add(const MissFact& fact, std::uint32_t num_tokens) {
    facts_.missed[static_cast<std::size_t>(fact.cause)] += num_tokens;
    facts_.num_missed += num_tokens;
    MissFact* last = facts_.misses.empty() ? nullptr : &facts_.misses.back();
    // Merges the block with the previous one if the cause is the same: after a divergence, the following blocks were not stored either.
    const bool goes_on = last != nullptr && last->first_token + last->num_tokens == fact.first_token && last->cause == fact.cause &&
                         last->by == fact.by && !fact.differs_at.has_value();
    if (goes_on)
      last->num_tokens += num_tokens;
    else if (facts_.misses.size() < RequestExplanation::kMaxMissFacts)
      facts_.misses.push_back(fact);
  }

  const RequestView& view_;
  const LookUpResult& look_up_;
  const BlockHistoryTable& memory_;
  const ExplainOptions& options_;
  RequestExplanation& facts_;
  std::uint32_t first_ = 0, end_ = 0;
};

}  // namespace

std::optional<std::uint64_t> key_of_block(std::span<const std::uint8_t> block_hashes, std::uint32_t block, const ExplainOptions& options) {
  const std::size_t place = (std::size_t{block} + 1) * (options.block_size / options.hash_block_size) - 1;
  BlockHashBytes name{};
  if ((place + 1) * name.size() > block_hashes.size()) return std::nullopt;
  std::memcpy(name.data(), block_hashes.data() + place * name.size(), name.size());
  return BlockHistoryTable::key_of(name);
}

void explain_admission(const RequestView& view, const LookUpResult& look_up, std::uint32_t num_computed, std::uint32_t num_tokens,
                       const BlockHistoryTable& memory, const ExplainOptions& options, RequestExplanation& facts) {
  QUIRE_CHECK(num_computed <= num_tokens, "computed tokens do not exceed the tokens of the request");
  facts.num_tokens = num_tokens;
  facts.num_cached = look_up.is_known ? std::min(look_up.num_cached, num_computed) : 0;
  const std::uint32_t num_others = num_computed - facts.num_cached;
  facts.num_external = look_up.is_known ? num_others : 0;
  facts.num_shared = look_up.is_known ? 0 : num_others;
  facts.remembered_since = memory.forgotten_until();
  Misses(view, look_up, memory, options, facts).explain(num_computed, num_tokens);
}

}  // namespace quire
