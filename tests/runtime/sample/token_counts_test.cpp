#include "runtime/sample/token_counts.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace quire {
namespace {

TEST(TokenCounts, AgreesWithAMapUnderRandomUse) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    TokenCounts counts;
    counts.reset(seed % 3 == 0 ? 1000 : 0);
    std::map<TokenId, std::uint32_t> naive;
    for (int i = 0; i < 2000; ++i) {
      const auto token = static_cast<TokenId>(random() % (1 + seed * 40));
      if (random() % 3 == 0) {
        counts.add_prompt(token);
        naive[token] += 0;
      } else {
        counts.add_output(token);
        ++naive[token];
      }
    }
    std::map<TokenId, std::uint32_t> seen;
    counts.for_each([&](const TokenCounts::Entry& entry) { EXPECT_TRUE(seen.emplace(entry.token, entry.num_outputs).second); });
    EXPECT_EQ(seen, naive);
    EXPECT_EQ(counts.size(), naive.size());
  }
}

TEST(TokenCounts, ResetForgetsEverything) {
  TokenCounts counts;
  counts.reset(4);
  counts.add_output(7);
  counts.reset(4);
  EXPECT_EQ(counts.size(), 0U);
  counts.for_each([](const TokenCounts::Entry&) { FAIL(); });
}

}  // namespace
}  // namespace quire
