#include "runtime/sample/ngram_proposer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"

namespace quire {
namespace {

// Tries every length from the longest down, and every position from the first on.
std::vector<TokenId> naive(const NgramOptions& options, std::uint32_t max_model_len, std::span<const TokenId> history) {
  const std::size_t size = history.size();
  if (size >= max_model_len) return {};
  for (std::size_t length = std::min<std::size_t>(options.prompt_lookup_max, size - 1); length >= options.prompt_lookup_min; --length) {
    for (std::size_t begin = 0; begin + length < size; ++begin) {
      if (!std::ranges::equal(history.subspan(begin, length), history.last(length))) continue;
      const auto rest = history.subspan(begin + length);
      const std::size_t most = std::min<std::size_t>(options.num_speculative_tokens, max_model_len - size);
      return {rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(std::min(most, rest.size()))};
    }
    if (length == 0) break;
  }
  return {};
}

TEST(NgramProposer, ProposesTheTokensAfterTheFirstMatchOfTheLongestSuffix) {
  NgramProposer proposer({.num_speculative_tokens = 3, .prompt_lookup_min = 2, .prompt_lookup_max = 3}, 100);
  const std::vector<TokenId> history = {9, 1, 2, 3, 7, 8, 1, 2, 3, 4, 5, 1, 2, 3};
  EXPECT_TRUE(std::ranges::equal(proposer.propose(history), std::vector<TokenId>{7, 8, 1}));
  EXPECT_TRUE(proposer.propose(std::vector<TokenId>{1, 2, 3, 4}).empty());
  EXPECT_TRUE(proposer.propose(std::vector<TokenId>{1}).empty());
}

TEST(NgramProposer, MatchesAnExhaustiveSearch) {
  Random random(23);
  std::uint64_t num_found = 0;
  for (int round = 0; round < 20'000; ++round) {
    NgramOptions options{.num_speculative_tokens = static_cast<std::uint32_t>(random.between(1, 6))};
    options.prompt_lookup_min = static_cast<std::uint32_t>(random.between(1, 4));
    options.prompt_lookup_max = options.prompt_lookup_min + static_cast<std::uint32_t>(random.below(4));
    std::vector<TokenId> history(random.between(1, 60));
    for (TokenId& token : history) token = static_cast<TokenId>(random.below(random.between(1, 4)));
    const auto max_model_len = static_cast<std::uint32_t>(random.between(history.size(), 64));
    NgramProposer proposer(options, max_model_len);
    const auto proposed = proposer.propose(history);
    ASSERT_EQ(std::vector<TokenId>(proposed.begin(), proposed.end()), naive(options, max_model_len, history)) << "round " << round;
    num_found += proposed.empty() ? 0 : 1;
  }
  EXPECT_GT(num_found, 5'000U) << "too few proposals";
}

}  // namespace
}  // namespace quire
