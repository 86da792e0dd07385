// Compares the composite connector with a naive model. The members have random tokens of a prompt. The test checks which members a request
// loads from, what peek() finds and what each member is allocated.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/random.h"
#include "core/connect/composite_connector.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

// Loads consecutive tokens from the requested position on, up to the first one that it does not have.
class TokensMember final : public QuietConnector {
 public:
  std::set<std::uint32_t> has;
  bool load_async = false, knows = true;
  std::pair<std::size_t, std::uint32_t> told;  // blocks, external tokens

  [[nodiscard]] std::uint32_t num_from(std::uint32_t first) const {
    std::uint32_t end = first;
    while (has.contains(end)) ++end;
    return end - first;
  }
  ExternalMatch match(const RequestView& /*request*/, std::uint32_t num_local_tokens) override {
    if (!knows) return {.num_tokens = std::nullopt, .load_async = false};
    return {.num_tokens = num_from(num_local_tokens), .load_async = load_async};
  }
  bool peek(const RequestView& /*request*/, std::uint32_t num_local_tokens, std::vector<TierMatch>& matches) override {
    matches.push_back({.tier = 0, .num_tokens = num_from(num_local_tokens), .load_async = load_async});
    return knows;
  }
  void allocated(const RequestView& /*request*/, GroupBlocks blocks, std::uint32_t num_external_tokens) override {
    told = {blocks[0].size(), num_external_tokens};
  }
  bool reset() override { return true; }
};

using Members = std::vector<std::shared_ptr<TokensMember>>;

Members random_members(Random& random) {
  Members members;
  for (std::uint64_t i = random.between(1, 4); i > 0; --i) {
    TokensMember& member = *members.emplace_back(std::make_shared<TokensMember>());
    for (std::uint32_t token = 0; token < 12; ++token)
      if (random.chance(0.5)) member.has.insert(token);
    member.load_async = random.chance(0.7);
    member.knows = !random.chance(0.04);
  }
  return members;
}

struct Part {
  std::size_t member;
  std::uint32_t num_tokens;
};

// Returns how many tokens each member loads, in token order.
std::vector<Part> naive_parts(const Members& members, CompositeChoice choice, std::uint32_t num_local) {
  std::vector<Part> parts;
  if (choice != CompositeChoice::stacked) {
    for (std::size_t i = 0; i < members.size(); ++i)
      if (const std::uint32_t num_tokens = members[i]->num_from(num_local); num_tokens > 0) parts.push_back({i, num_tokens});
    if (parts.empty()) return parts;
    // The first member with the longest match is chosen.
    const auto longest = std::ranges::max_element(parts, {}, &Part::num_tokens);
    return {choice == CompositeChoice::first ? parts[0] : *longest};
  }
  // The search visits the members in turn until it skips all of them in a row.
  std::size_t num_passed = 0;
  for (std::size_t i = 0; num_passed < members.size(); i = (i + 1) % members.size(), ++num_passed) {
    const bool fits = parts.empty() || members[parts[0].member]->load_async == members[i]->load_async;
    const std::uint32_t num_tokens = members[i]->num_from(num_local);
    if (num_tokens == 0 || !fits || std::ranges::find(parts, i, &Part::member) != parts.end()) continue;
    parts.push_back({i, num_tokens});
    num_local += num_tokens;
    num_passed = 0;
  }
  return parts;
}

TEST(CompositeConnector, MatchesPeeksAndAllocatesLikeANaiveModel) {
  constexpr std::array kChoices = {CompositeChoice::first, CompositeChoice::longest, CompositeChoice::stacked};
  std::map<std::size_t, std::uint32_t> num_met;  // by parts
  std::uint32_t num_unknown = 0;
  for (std::uint64_t seed = 0; seed < 6000; ++seed) {
    Random random(seed);
    const CompositeChoice choice = kChoices[random.below(3)];
    const Members members = random_members(random);
    std::vector<CompositeMember> given;
    given.reserve(members.size());
    for (std::uint32_t i = 0; i < members.size(); ++i) given.push_back({.connector = members[i], .tier = 10 + i});
    CompositeConnector composite(given, choice);
    RequestView request;
    request.id = RequestId{seed};
    const auto num_local = static_cast<std::uint32_t>(random.below(4));
    const bool is_known = std::ranges::all_of(members, [](const auto& member) { return member->knows; });

    std::vector<TierMatch> looked;
    ASSERT_EQ(composite.peek(request, num_local, looked), is_known) << "seed " << seed;
    ASSERT_EQ(composite.num_tracked(), 0U) << "peek() tracks nothing, seed " << seed;
    const ExternalMatch match = composite.match(request, num_local);
    ASSERT_EQ(match.num_tokens.has_value(), is_known) << "seed " << seed;
    num_unknown += is_known ? 0 : 1;
    if (!is_known) continue;

    const std::vector<Part> parts = naive_parts(members, choice, num_local);
    std::vector<TierMatch> expected;
    std::uint32_t num_tokens = 0;
    for (const Part& part : parts) {
      const auto tier = static_cast<std::uint32_t>(10 + part.member);
      expected.push_back({.tier = tier, .num_tokens = part.num_tokens, .load_async = members[part.member]->load_async});
      num_tokens += part.num_tokens;
    }
    ASSERT_EQ(looked, expected) << "seed " << seed;
    ASSERT_EQ(match.num_tokens, num_tokens) << "seed " << seed;
    ASSERT_EQ(match.load_async, !parts.empty() && members[parts[0].member]->load_async) << "seed " << seed;
    ++num_met[parts.size()];

    // The pool may have room for fewer tokens than were found.
    const std::vector<BlockId> blocks(5, BlockId{1});
    const std::span<const BlockId> groups[] = {blocks};
    auto num_left = static_cast<std::uint32_t>(random.between(0, num_tokens));
    composite.allocated(request, groups, num_left);
    std::vector<std::pair<std::size_t, std::uint32_t>> told(members.size());
    for (const Part& part : parts) {
      const std::uint32_t num_taken = std::min(part.num_tokens, num_left);
      num_left -= num_taken;
      told[part.member] = {num_taken > 0 || choice != CompositeChoice::stacked ? blocks.size() : 0, num_taken};
    }
    for (std::size_t i = 0; i < members.size(); ++i) ASSERT_EQ(members[i]->told, told[i]) << "member " << i << ", seed " << seed;
    composite.check_invariants();
    composite.finished(request, groups);
    ASSERT_EQ(composite.num_tracked(), 0U);
  }
  EXPECT_GT(num_unknown, 300U) << "the test covers too few cases";
  for (const std::size_t num_parts : {0U, 1U, 2U, 3U, 4U}) EXPECT_GT(num_met[num_parts], num_parts == 4 ? 5U : 50U) << num_parts;
}

}  // namespace
}  // namespace quire::test
