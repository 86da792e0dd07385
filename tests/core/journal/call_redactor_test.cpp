// Tests the calls in a journal without tokens: they contain no text, but all values that the core's decisions depend on.
#include "core/journal/call_redactor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/journal/pseudonyms.h"
#include "core/schedule/core_driver.h"
#include "quire/core_calls.h"

namespace quire::test {
namespace {

constexpr TokenId kEven = -2, kOdd = -3;  // the same values in journals of all builds
constexpr PseudonymKey kBlankKey{.words = {1, 2}, .hash_bytes = 32};

Tokens tokens_of(std::span<const SampledToken> sampled) {
  Tokens tokens;
  tokens.reserve(sampled.size());
  for (const SampledToken& one : sampled) tokens.push_back(one.token);
  return tokens;
}

RequestUpdate update(std::uint64_t id, std::span<const TokenId> tokens, bool finished, RequestStatus status) {
  RequestUpdate update;
  update.id = RequestId{id};
  update.tokens = tokens;
  update.finished = finished;
  update.status = status;
  return update;
}

StepOutcome outcome_of(std::span<const RequestUpdate> updates) {
  StepOutcome outcome{};
  outcome.updates = updates;
  return outcome;
}

TEST(CallRedactor, ReplacesThePromptEmbeddingsAndBlockHashesOfARequest) {
  CallRedactor blank(kBlankKey);
  const Tokens prompt = {7, 8, 9};
  const std::vector<std::byte> embeds(12, std::byte{5});
  std::vector<std::uint8_t> names(64, 3);
  names[40] = 4;
  NewRequest given = CoreDriver::request(1, prompt, 5);
  given.prompt_embeds = embeds;
  given.block_hashes = names;
  given.cache_salt = "salt";
  given.repetition = {.min_pattern_tokens = 2, .max_pattern_tokens = 7, .min_count = 1};
  const NewRequest other = blank.request(given);
  EXPECT_EQ(Tokens(other.prompt.begin(), other.prompt.end()), Tokens(3, kEven));
  EXPECT_EQ(std::vector(other.prompt_embeds.begin(), other.prompt_embeds.end()), std::vector(12, std::byte{0}));
  EXPECT_EQ(std::vector(other.block_hashes.begin(), other.block_hashes.end()), pseudonyms(kBlankKey, names));
  EXPECT_EQ(other.max_tokens, 5U);
  EXPECT_EQ(other.cache_salt, "salt");
  EXPECT_EQ(Tokens(other.stop_token_ids.begin(), other.stop_token_ids.end()), Tokens{kStop}) << "stop token ids are an option, not text";
  EXPECT_EQ(other.repetition.max_pattern_tokens, 7U) << "a count of 1 detects nothing, so the option stays";
  given.repetition.min_count = 3;
  const RepetitionDetection two = blank.request(given).repetition;
  EXPECT_EQ(two.min_pattern_tokens, 1U);
  EXPECT_EQ(two.max_pattern_tokens, 1U);
  EXPECT_EQ(two.min_count, 2U);
}

TEST(CallRedactor, ReplacesTheTokensOfASessionInput) {
  CallRedactor blank(kBlankKey);
  const Tokens tokens = {7, 8};
  const SessionInput other = blank.input({.tokens = tokens, .max_tokens = 9});
  EXPECT_EQ(Tokens(other.tokens.begin(), other.tokens.end()), Tokens(2, kEven));
  EXPECT_EQ(other.max_tokens, 9U);
}

TEST(CallRedactor, ReplacesDraftTokensThatAreNotPlaceholders) {
  CallRedactor blank(kBlankKey);
  const Tokens one = {7, 0, -1}, two = {}, three = {-1, 9};
  const std::vector<Draft> given = {{RequestId{1}, one}, {RequestId{2}, two}, {RequestId{3}, three}};
  const std::span<const Draft> drafts = blank.drafts(given);
  ASSERT_EQ(drafts.size(), 3U);
  EXPECT_EQ(Tokens(drafts[0].tokens.begin(), drafts[0].tokens.end()), (Tokens{kEven, kEven, -1}));
  EXPECT_TRUE(drafts[1].tokens.empty());
  EXPECT_EQ(Tokens(drafts[2].tokens.begin(), drafts[2].tokens.end()), (Tokens{-1, kEven}));
  EXPECT_EQ(drafts[2].id, RequestId{3});
}

TEST(CallRedactor, ReplacesTheNextTokenOfAForkByItsOutputPosition) {
  CallRedactor blank(kBlankKey);
  CoreDriver d(sync_config());
  d.add(1, 5, 20);
  for (int i = 0; i < 3; ++i) d.step();
  ASSERT_EQ(d.outputs(1).size(), 3U);
  const auto next = [&](std::uint32_t num_tokens, std::uint64_t parent = 1) {
    return blank.child(d.core.get(), RequestId{parent}, {.id = RequestId{9}, .num_tokens = num_tokens, .next_token = 77}).next_token;
  };
  EXPECT_EQ(next(0), kOdd) << "after three outputs";
  EXPECT_EQ(next(5), kEven) << "the first output";
  EXPECT_EQ(next(6), kOdd);
  EXPECT_EQ(next(7), kEven);
  EXPECT_EQ(next(8, 2), kEven) << "all tokens of an unknown parent count as outputs";
  EXPECT_EQ(next(7, 2), kOdd);
  EXPECT_EQ(blank.child(nullptr, RequestId{1}, {.id = RequestId{9}, .num_tokens = 3, .next_token = 77}).next_token, kOdd);
  EXPECT_EQ(blank.child(d.core.get(), RequestId{1}, {.id = RequestId{9}, .num_tokens = 6}).next_token, std::nullopt);
}

TEST(CallRedactor, ReplacesSampledTokensExceptTheOneThatEndsARequest) {
  CallRedactor blank(kBlankKey);
  CoreDriver d(sync_config());
  const std::vector<SampledToken> sampled = {
      {RequestId{1}, 7}, {RequestId{1}, kStop}, {RequestId{2}, 8}, {RequestId{3}, -1}, {RequestId{4}, 0}};
  const StepResult given{.step = StepId{6}, .sampled = sampled};
  blank.begin_result(d.core.get(), given);
  const StepResult unknown = blank.result(given, nullptr);
  EXPECT_EQ(unknown.step, StepId{6});
  EXPECT_EQ(tokens_of(unknown.sampled), (Tokens{kEven, kEven, kEven, -1, kEven})) << "a negative number is no token and stays";
  for (std::size_t i = 0; i < sampled.size(); ++i) EXPECT_EQ(unknown.sampled[i].id, sampled[i].id);
  const Tokens two = {7, kStop}, one = {8};
  const std::vector<RequestUpdate> updates = {update(1, two, true, RequestStatus::finished_stopped),
                                              update(2, one, true, RequestStatus::finished_length),
                                              update(4, one, false, RequestStatus::finished_stopped)};
  const StepOutcome outcome = outcome_of(updates);
  blank.begin_result(d.core.get(), given);
  EXPECT_EQ(tokens_of(blank.result(given, &outcome).sampled), (Tokens{kEven, kStop, kEven, -1, kEven}));
}

// Outputs of a request with repetition detection alternate, except for the output that completes the repetition.
TEST(CallRedactor, AlternatesOutputsUntilTheRepetitionIsDetected) {
  CallRedactor blank(kBlankKey);
  CoreDriver d(sync_config());
  const Tokens prompt = CoreDriver::prompt(1, 5);
  NewRequest request = CoreDriver::request(1, prompt, 20);
  d.add(request);
  d.add(2, 5, 20);
  for (int i = 0; i < 3; ++i) d.step();
  d.add(3, 4, 20);
  const std::vector<SampledToken> sampled = {{RequestId{1}, 7}, {RequestId{1}, 7}, {RequestId{1}, 7},
                                             {RequestId{2}, 8}, {RequestId{3}, 9}, {RequestId{5}, 9}};
  const StepResult given{.sampled = sampled};
  blank.begin_result(d.core.get(), given);
  EXPECT_EQ(tokens_of(blank.result(given, nullptr).sampled), Tokens(6, kEven)) << "no request detects repetitions";
  request.repetition = {.min_pattern_tokens = 1, .max_pattern_tokens = 2, .min_count = 2};
  (void)blank.request(request);
  blank.begin_result(d.core.get(), given);
  EXPECT_EQ(tokens_of(blank.result(given, nullptr).sampled), (Tokens{kOdd, kEven, kOdd, kOdd, kEven, kEven}))
      << "outputs alternate by position";
  blank.begin_result(nullptr, given);
  EXPECT_EQ(tokens_of(blank.result(given, nullptr).sampled), Tokens(6, kEven));
  const Tokens taken = {7, 7};
  const std::vector<RequestUpdate> updates = {update(1, taken, true, RequestStatus::finished_repetition)};
  const StepOutcome outcome = outcome_of(updates);
  blank.begin_result(d.core.get(), given);
  EXPECT_EQ(tokens_of(blank.result(given, &outcome).sampled), (Tokens{kOdd, kOdd, kOdd, kOdd, kEven, kEven}))
      << "the second output of the first request equals the one before it";
}

// The mask of positions that take embeddings is written only if there is one.
TEST(CallEncoder, WritesAMaskOnlyWhenThereIsOne) {
  const std::vector<std::uint8_t> all(6, 1), some = {0, 1, 1, 0, 1, 0};
  const auto written = [](const PlaceholderRange& range) {
    const Tokens prompt = CoreDriver::prompt(1, 9);
    const std::vector<MultimodalFeature> items{{"a", range}};
    NewRequest request = CoreDriver::request(1, prompt, 2);
    request.multimodal = items;
    CoreCallWriter calls;
    calls.sink().on_call(core_call::Add{request});
    return calls.take();
  };
  const auto played = [](const std::vector<std::uint8_t>& bytes) {
    CoreConfig config = sync_config();
    config.encoder.max_encoder_tokens = config.encoder.encoder_cache_size = 16;
    CoreCallWriter calls;
    const auto core = Core::create(config, {.calls = &calls.sink()}).value();
    CoreCallReader reader(bytes);
    EXPECT_TRUE(reader.next().value());
    reader.play(*core);
    EXPECT_FALSE(reader.next().value());
    return calls.take();
  };
  const std::vector<std::uint8_t> none = written(PlaceholderRange(1, 6)), full = written(PlaceholderRange(1, all)),
                                  part = written(PlaceholderRange(1, some));
  EXPECT_EQ(full.size(), none.size() + 6);
  EXPECT_EQ(part.size(), none.size() + 6);
  const std::vector<std::uint8_t> one(1, 1);
  EXPECT_EQ(written(PlaceholderRange(1, one)).size(), written(PlaceholderRange(1, 1)).size() + 1);
  EXPECT_EQ(written(PlaceholderRange(1, std::span(some).first(1))).size(), written(PlaceholderRange(1, 1)).size() + 1);
  for (const std::vector<std::uint8_t>& bytes : {none, full, part}) EXPECT_EQ(played(bytes), bytes);
}

}  // namespace
}  // namespace quire::test
