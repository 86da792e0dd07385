// Compares the search alone with a naive implementation.
#include "engine/requests/beam_search.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/requests/naive_beams.h"

namespace quire {
namespace {

using Offer = std::vector<TokenLogprob>;

std::vector<TokenId> tokens_of(std::span<const BeamSearch::Beam> beams) {
  std::vector<TokenId> tokens;
  std::ranges::transform(beams, std::back_inserter(tokens), &BeamSearch::Beam::token);
  return tokens;
}

std::vector<std::vector<TokenId>> answers(const BeamSearch& search) {
  std::vector<std::vector<TokenId>> found;
  for (const BeamSearch::Hypothesis& best : search.best()) found.push_back(best.tokens);
  return found;
}

// The next token is a function of the tokens before. Log probabilities take so few values that many are equal.
class RandomModel {
 public:
  RandomModel(std::uint64_t seed, std::uint32_t vocab_size) : seed_(seed), vocab_size_(vocab_size) {}
  [[nodiscard]] Offer operator()(std::span<const TokenId> history, std::uint32_t count) const {
    std::uint64_t name = seed_;
    for (const TokenId token : history) name = Random(name * 31 + static_cast<std::uint64_t>(token)).next();
    Random random(name);
    std::vector<TokenId> tokens(vocab_size_);
    for (std::uint32_t i = 0; i < vocab_size_; ++i) tokens[i] = static_cast<TokenId>(i);
    Offer offer;
    float logprob = 0.0F;
    for (std::uint32_t i = 0; i < std::min(count, vocab_size_); ++i) {
      std::swap(tokens[i], tokens[random.between(i, vocab_size_ - 1)]);
      logprob -= static_cast<float>(random.below(4)) / 4.0F;
      offer.push_back({tokens[i], logprob, i + 1});
    }
    return offer;
  }

 private:
  std::uint64_t seed_;
  std::uint32_t vocab_size_;
};

TEST(BeamSearch, MatchesTheNaiveSearch) {
  std::uint32_t num_early = 0, num_by_eos = 0, num_beams = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Random random(seed);
    NaiveSearch wanted{.prompt = std::vector<TokenId>(random.between(1, 20), 3),
                       .width = static_cast<std::uint32_t>(random.between(1, 6)),
                       .max_tokens = static_cast<std::uint32_t>(random.between(1, 16)),
                       .length_penalty = static_cast<double>(random.between(0, 12)) / 4.0 - 1.0,
                       .ignore_eos = random.chance(0.3)};
    for (std::uint64_t i = random.below(3); i > 0; --i) wanted.eos_ids.push_back(static_cast<TokenId>(random.below(12)));
    const RandomModel model(seed, static_cast<std::uint32_t>(random.between(12, 40)));
    BeamSearch search({.width = wanted.width,
                       .num_prompt_tokens = static_cast<std::uint32_t>(wanted.prompt.size()),
                       .max_tokens = wanted.max_tokens,
                       .length_penalty = wanted.length_penalty,
                       .ignore_eos = wanted.ignore_eos,
                       .eos_ids = wanted.eos_ids,
                       .logprobs = 3});
    std::vector<std::vector<TokenId>> histories{wanted.prompt};
    while (!search.is_over()) {
      std::vector<Offer> offers;
      offers.reserve(histories.size());
      for (const auto& history : histories) offers.push_back(model(history, 2 * wanted.width));
      search.step(offers);
      histories.assign(search.beams().size(), wanted.prompt);
      for (std::uint32_t i = 0; i < histories.size(); ++i) std::ranges::copy(search.outputs(i), std::back_inserter(histories[i]));
    }
    const auto expected = naive_beam_search(wanted, model);
    const auto best = search.best();
    ASSERT_EQ(best.size(), expected.size()) << "seed " << seed;
    for (std::size_t i = 0; i < best.size(); ++i) {
      const std::string where = fmt::format("seed {}, answer {}", seed, i);
      ASSERT_EQ(best[i].tokens, expected[i].tokens) << where;
      ASSERT_EQ(best[i].cum_logprob, expected[i].cum_logprob) << where;
      ASSERT_EQ(best[i].score, expected[i].score) << where;
      ASSERT_EQ(best[i].by_eos, expected[i].by_eos) << where;
      ASSERT_EQ(best[i].logprobs.size(), best[i].tokens.size());
      double sum = 0.0;
      std::vector<TokenId> history = wanted.prompt;
      for (std::size_t at = 0; at < best[i].tokens.size(); ++at) {
        const auto& entries = best[i].logprobs[at].entries;
        ASSERT_EQ(entries.size(), std::min<std::size_t>(4, 1 + 2 * wanted.width));
        ASSERT_EQ(entries[0].token, best[i].tokens[at]);
        ASSERT_EQ(entries[1].token, model(history, 1)[0].token);
        sum += static_cast<double>(entries[0].logprob);
        history.push_back(best[i].tokens[at]);
      }
      ASSERT_EQ(sum, best[i].cum_logprob);
      num_by_eos += best[i].by_eos ? 1 : 0;
      num_beams += best[i].by_eos ? 0 : 1;
    }
    num_early += search.num_steps() < wanted.max_tokens ? 1 : 0;
  }
  EXPECT_GT(num_early, 300U) << "the run must contain searches that end early";
  EXPECT_GT(num_by_eos, 1000U);
  EXPECT_GT(num_beams, 1000U);
}

TEST(BeamSearch, ContinuesTheLikeliestTokensOverAllBeams) {
  BeamSearch search({.width = 2, .num_prompt_tokens = 4, .max_tokens = 3});
  search.step(std::vector<Offer>{{{10, -1.0F}, {11, -1.5F}, {12, -4.0F}, {13, -5.0F}}});
  EXPECT_EQ(tokens_of(search.beams()), (std::vector<TokenId>{10, 11}));
  search.step(
      std::vector<Offer>{{{20, -3.0F}, {21, -3.5F}, {22, -4.0F}, {23, -5.0F}}, {{30, -0.5F}, {31, -1.0F}, {32, -2.0F}, {33, -9.0F}}});
  EXPECT_EQ(tokens_of(search.beams()), (std::vector<TokenId>{30, 31})) << "both continue the second beam";
  EXPECT_EQ(search.beams()[0].parent, 1U);
  EXPECT_EQ(search.beams()[1].parent, 1U);
  EXPECT_FALSE(search.is_over());
  search.step(std::vector<Offer>{{{40, -1.0F}, {41, -2.0F}}, {{50, -0.25F}, {51, -2.0F}}});
  EXPECT_TRUE(search.is_over());
  EXPECT_EQ(answers(search), (std::vector<std::vector<TokenId>>{{11, 31, 50}, {11, 30, 40}}));
  EXPECT_EQ(search.best()[0].cum_logprob, -2.75);
  EXPECT_EQ(search.best()[0].score, -2.75 / 7.0);
}

TEST(BeamSearch, KeepsEqualCandidatesInTheirOrder) {
  BeamSearch search({.width = 3, .num_prompt_tokens = 1, .max_tokens = 2});
  search.step(std::vector<Offer>{{{7, -1.0F}, {3, -1.0F}, {5, -1.0F}, {1, -1.0F}}});
  EXPECT_EQ(tokens_of(search.beams()), (std::vector<TokenId>{7, 3, 5}));
  search.step(std::vector<Offer>{{{2, -2.0F}, {1, -3.0F}}, {{9, -2.0F}, {8, -2.0F}}, {{4, -1.0F}, {6, -2.0F}}});
  EXPECT_EQ(answers(search), (std::vector<std::vector<TokenId>>{{5, 4}, {7, 2}, {3, 9}}));
}

// The EOS counts towards the log probability but not towards the length.
TEST(BeamSearch, AppliesVllmsLengthPenalty) {
  EXPECT_EQ(beam_score(-6.0, 4, 1.0), -1.5);
  EXPECT_EQ(beam_score(-6.0, 4, 0.0), -6.0);
  EXPECT_EQ(beam_score(-6.0, 4, 0.5), -3.0);
  for (const bool prefer_long : {false, true}) {
    BeamSearch search({.width = 2, .num_prompt_tokens = 1, .max_tokens = 2, .length_penalty = prefer_long ? 2.0 : 0.0, .eos_ids = {0}});
    search.step(std::vector<Offer>{{{0, -2.0F}, {5, -2.5F}, {6, -3.0F}, {7, -9.0F}}});
    EXPECT_EQ(tokens_of(search.beams()), (std::vector<TokenId>{5, 6}));
    search.step(std::vector<Offer>{{{8, -1.0F}, {0, -3.0F}, {9, -12.0F}, {4, -12.0F}}, {{8, -12.0F}, {9, -12.0F}}});
    const auto best = search.best();
    ASSERT_EQ(best.size(), 2U);
    const std::vector<TokenId> ended = prefer_long ? std::vector<TokenId>{5, 0} : std::vector<TokenId>{0};
    EXPECT_EQ(best[prefer_long ? 1 : 0].tokens, ended);
    EXPECT_EQ(best[prefer_long ? 0 : 1].tokens, (std::vector<TokenId>{5, 8}));
    EXPECT_EQ(best[0].by_eos, !prefer_long);
  }
}

TEST(BeamSearch, CanIgnoreEos) {
  for (const bool ignore : {false, true}) {
    BeamSearch search({.width = 1, .num_prompt_tokens = 1, .max_tokens = 2, .length_penalty = 1.0, .ignore_eos = ignore, .eos_ids = {0}});
    search.step(std::vector<Offer>{{{0, -0.5F}, {5, -3.0F}}});
    EXPECT_EQ(search.is_over(), !ignore) << "no open beam can exceed the complete one";
    if (ignore) {
      EXPECT_EQ(tokens_of(search.beams()), (std::vector<TokenId>{0}));
      search.step(std::vector<Offer>{{{0, -0.5F}, {5, -3.0F}}});
      EXPECT_EQ(search.best()[0].score, -0.5) << "a last EOS does not count for the length, ignored or not";
    }
    EXPECT_EQ(search.best()[0].by_eos, !ignore);
  }
}

// Only a beam that may still exceed the answers keeps the search running.
TEST(BeamSearch, EndsWhenNoOpenBeamCanEnterTheAnswers) {
  BeamSearch search({.width = 1, .num_prompt_tokens = 4, .max_tokens = 12, .length_penalty = 1.0, .eos_ids = {0}});
  search.step(std::vector<Offer>{{{0, -2.0F}, {5, -2.5F}}});
  EXPECT_FALSE(search.is_over()) << "-2.5 / 16 is more than -2 / 4";
  search.step(std::vector<Offer>{{{6, -5.0F}, {7, -6.0F}}});
  EXPECT_FALSE(search.is_over()) << "-7.5 / 16";
  search.step(std::vector<Offer>{{{6, -0.5F}, {7, -6.0F}}});
  EXPECT_TRUE(search.is_over()) << "-8 / 16 is no more than -2 / 4";
  EXPECT_EQ(answers(search), (std::vector<std::vector<TokenId>>{{0}}));
}

TEST(BeamSearch, FewTokensGiveFewBeams) {
  BeamSearch search({.width = 4, .num_prompt_tokens = 1, .max_tokens = 3, .eos_ids = {0}});
  search.step(std::vector<Offer>{{{0, -0.5F}, {5, -3.0F}}});
  EXPECT_EQ(search.beams().size(), 1U);
  search.step(std::vector<Offer>{{{0, -0.5F}}});
  EXPECT_TRUE(search.is_over()) << "no beam is left";
  EXPECT_EQ(search.best().size(), 2U);
}

TEST(BeamSearch, ConsidersTwiceAsManyTokensOfABeamAsItIsWide) {
  BeamSearch search({.width = 1, .num_prompt_tokens = 1, .max_tokens = 3, .eos_ids = {0, 1}});
  search.step(std::vector<Offer>{{{0, -0.5F}, {1, -1.0F}, {5, -1.5F}}});
  EXPECT_TRUE(search.beams().empty()) << "the third token is not considered";
  EXPECT_TRUE(search.is_over());
  EXPECT_EQ(answers(search), (std::vector<std::vector<TokenId>>{{0}}));
}

TEST(BeamSearch, RemembersAsManyAlternativesAsTheClientAsksFor) {
  for (const std::optional<std::uint32_t> logprobs :
       {std::optional<std::uint32_t>{}, std::optional(0U), std::optional(1U), std::optional(9U)}) {
    BeamSearch search({.width = 2, .num_prompt_tokens = 1, .max_tokens = 2, .logprobs = logprobs});
    search.step(std::vector<Offer>{{{7, -1.0F, 1}, {3, -1.5F, 2}, {4, -2.0F, 3}, {5, -9.0F, 4}}});
    search.step(std::vector<Offer>{{{8, -1.0F, 1}, {2, -9.0F, 2}}, {{6, -1.0F, 1}, {1, -9.0F, 2}}});
    const auto best = search.best();
    ASSERT_EQ(best.size(), 2U);
    EXPECT_EQ(best[1].tokens, (std::vector<TokenId>{3, 6}));
    ASSERT_EQ(best[1].logprobs.size(), logprobs.has_value() ? 2U : 0U);
    if (!logprobs.has_value()) continue;
    const auto &first = best[1].logprobs[0].entries, &second = best[1].logprobs[1].entries;
    ASSERT_EQ(first.size(), 1 + std::min(*logprobs, 4U));
    EXPECT_EQ(first[0].token, 3);
    EXPECT_EQ(first[0].logprob, -1.5F);
    EXPECT_EQ(first[0].rank, 2U);
    ASSERT_EQ(second.size(), 1 + std::min(*logprobs, 2U));
    EXPECT_EQ(second[0].token, 6);
    if (*logprobs == 0) continue;
    EXPECT_EQ(first[1].token, 7) << "the likeliest token comes first";
    EXPECT_EQ(second[1].token, 6) << "the alternatives of its own beam";
  }
}

}  // namespace
}  // namespace quire
