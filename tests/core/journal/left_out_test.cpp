// Tests journals without tokens: two conversations of one form have the same bytes, and no token is in them.
#include "core/journal/left_out.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "core/journal/journal_format.h"
#include "core/journal/pseudonyms.h"
#include "core/schedule/core_driver.h"
#include "quire/journal.h"

namespace quire::test {
namespace {

constexpr PseudonymKey kKey{.words = {5, 6}};

KvEventHash hash_of(std::uint8_t value) {
  return KvEventHash(32, value);
}

TEST(LeftOutEvents, HavePseudonymsAndNoTokens) {
  BlockStored stored;
  stored.block_hashes = {hash_of(1), hash_of(2)};
  stored.parent_block_hash = hash_of(3);
  stored.token_ids = {7, 8, 9};
  stored.block_size = 4;
  stored.lora_id = 5;
  stored.lora_name = "adapter";
  const std::vector<std::uint8_t> digest(32, 9);
  stored.extra_keys = {KvExtraKeys{std::string("adapter"), MultimodalKey{"image", -3}, digest}, std::nullopt};
  BlockStored expected = stored;
  expected.token_ids = {-2, -2, -2};
  expected.extra_keys->at(0)->at(2) = std::vector<std::uint8_t>(32, 0);
  EXPECT_EQ(left_out(stored, nullptr), expected);
  expected.block_hashes = {pseudonyms(kKey, hash_of(1)), pseudonyms(kKey, hash_of(2))};
  expected.parent_block_hash = pseudonyms(kKey, hash_of(3));
  EXPECT_EQ(left_out(stored, &kKey), expected);
  stored.extra_keys = expected.extra_keys = std::nullopt;
  stored.parent_block_hash = expected.parent_block_hash = std::nullopt;
  EXPECT_EQ(left_out(stored, &kKey), expected);
  const BlockRemoved removed{.block_hash = hash_of(4), .group_idx = 2};
  EXPECT_EQ(left_out(removed, nullptr), removed);
  EXPECT_EQ(left_out(removed, &kKey), (BlockRemoved{.block_hash = pseudonyms(kKey, hash_of(4)), .group_idx = 2}));
}

TEST(LeftOut, OutputsAlternateAndRepetitionNeedsACountOfTwo) {
  EXPECT_EQ(left_out(), -2);
  EXPECT_EQ(left_out(1), -3);
  EXPECT_EQ(left_out(6), -2);
  EXPECT_FALSE(looks_for_repetition({.min_pattern_tokens = 1, .max_pattern_tokens = 0, .min_count = 5}));
  EXPECT_FALSE(looks_for_repetition({.min_pattern_tokens = 1, .max_pattern_tokens = 1, .min_count = 1}));
  EXPECT_TRUE(looks_for_repetition({.min_pattern_tokens = 1, .max_pattern_tokens = 1, .min_count = 2}));
}

// Uses n as the hash of the n-th distinct block content.
class CountedNames final : public HashFunction {
 public:
  BlockHash hash(const BlockHash* parent, const HashInput& input) override {
    std::vector<TokenId> content(input.tokens.begin(), input.tokens.end());
    content.push_back(parent != nullptr ? parent->bytes[0] : 0);
    BlockHash name;
    name.bytes[0] = static_cast<std::uint8_t>(numbers_.try_emplace(content, numbers_.size() + 1).first->second);
    return name;
  }

 private:
  std::map<std::vector<TokenId>, std::size_t> numbers_;
};

struct Talk {
  std::vector<std::uint8_t> bytes;
  std::vector<std::vector<std::uint8_t>> calls;  // without the core states between them
  CoreConfig config;
  SeamRecord seams;
  double last_s = 0.0, last_step_s = 0.0;
  std::uint64_t num_steps = 0, num_calls = 0, num_taken = 0;
};

// Tokens are numbers from `secret` on. One request ends by a stop id, one by a repetition, one is a session and one is forked.
Talk talk(TokenId secret, bool tokens) {
  Talk talk;
  CountedNames names;
  JournalRecorder* itself = nullptr;
  JournalRecorder recorder(
      {.hash = &names},
      [&](std::span<const std::uint8_t> call) {
        ++talk.num_taken;
        talk.bytes.insert(talk.bytes.end(), call.begin(), call.end());
        talk.calls.emplace_back(call.begin(), call.end());
        if (!itself->can_checkpoint()) return;
        const std::vector<std::uint8_t> state = itself->checkpoint();
        talk.bytes.insert(talk.bytes.end(), state.begin(), state.end());
      },
      tokens ? std::nullopt : std::optional(kKey));
  itself = &recorder;
  EXPECT_FALSE(recorder.can_checkpoint()) << "no core exists yet";
  CoreConfig config = sync_config(64);
  config.speculation.num_spec_tokens = 2;
  config.report.enable_kv_events = true;
  talk.config = config;
  talk.seams = recorder.which();
  CoreDriver d(config, recorder.seams());
  Tokens prompt(14);
  for (std::size_t i = 0; i < prompt.size(); ++i) prompt[i] = secret + static_cast<TokenId>(i);
  d.add(CoreDriver::request(1, prompt, 30));
  const Tokens some(prompt.begin(), prompt.begin() + 9);
  NewRequest repeating = CoreDriver::request(2, some, 30);
  repeating.repetition = {.min_pattern_tokens = 1, .max_pattern_tokens = 2, .min_count = 3};
  d.add(repeating);
  const NewRequest session{.id = RequestId{3}, .prompt = prompt, .max_tokens = 2, .resumable = true};
  d.add(session);
  const auto said = [&](TokenId place) { return Tokens{secret + 100 + place}; };
  for (TokenId i = 0; i < 3; ++i) d.step({{1, said(i)}, {2, said(10 + i)}, {3, said(20 + i)}});
  const Tokens drafted = {secret + 50, secret + 51};
  const Draft draft{RequestId{1}, drafted};
  d.core->set_drafts({&draft, 1});
  d.plan();
  d.apply({{1, {secret + 50, secret + 51, secret + 52}}, {2, said(60)}});
  EXPECT_TRUE(d.core->fork(RequestId{1}, {.id = RequestId{4}, .arrival_time = 4.0, .next_token = secret + 70}, {.now = d.now}).has_value());
  const Tokens input = {secret + 80, secret + 81};
  const SessionInput more{.tokens = input, .arrival_time = 5.0, .max_tokens = 4};
  EXPECT_TRUE(d.core->continue_session(RequestId{3}, &more, {.now = d.now}).has_value());
  for (TokenId i = 0; i < 3; ++i) d.step({{1, said(90 + i)}, {2, said(60)}, {3, said(95 + i)}, {4, said(i == 2 ? 93 : 92)}});
  EXPECT_FALSE(d.known(2)) << "request 2 has repeated one token three times";
  d.step({{1, {kStop}}, {4, said(94)}});
  EXPECT_FALSE(d.known(1));
  d.core->finish(RequestId{4}, RequestStatus::finished_aborted, {.now = d.now});
  talk.num_steps = recorder.progress().num_steps;
  talk.num_calls = recorder.progress().num_calls;
  talk.last_step_s = recorder.progress().now_s;
  talk.last_s = d.now;
  return talk;
}

std::size_t count_secrets(const std::vector<std::uint8_t>& bytes, TokenId secret) {
  std::size_t count = 0;
  for (std::size_t i = 0; i + sizeof(TokenId) <= bytes.size(); ++i) {
    TokenId token = 0;
    std::memcpy(&token, &bytes[i], sizeof token);
    count += token >= secret && token < secret + 300 ? 1 : 0;
  }
  return count;
}

TEST(LeftOutTalk, TwoConversationsOfOneFormHaveTheSameBytesAndNoTokens) {
  const TokenId one = 0x2B5A4931, other = 0x1A2B3C4D;
  const Talk said = talk(one, true), left = talk(one, false);
  EXPECT_GT(count_secrets(said.bytes, one), 100U) << "the search finds recorded tokens";
  EXPECT_EQ(count_secrets(left.bytes, one), 0U);
  EXPECT_NE(said.bytes, talk(other, true).bytes);
  EXPECT_TRUE(left.bytes == talk(other, false).bytes);
  EXPECT_EQ(left.num_steps, said.num_steps);
  EXPECT_EQ(left.num_calls, said.num_calls);
  EXPECT_EQ(left.num_calls, left.num_taken);
  EXPECT_EQ(left.num_steps, 8U);
  EXPECT_GT(left.last_step_s, 0.0);
  EXPECT_LE(left.last_step_s, left.last_s);
}

// Omitted tokens affect no decision: a replay of the recorded calls makes the same decisions.
TEST(LeftOutTalk, ReplaysWithoutTokens) {
  const Talk talked = talk(0x2B5A4931, false);
  std::vector<std::uint8_t> bytes =
      journal_header_frame({.quire_version = "1", .decision_profile = "", .config = talked.config, .seams = talked.seams});
  for (const std::vector<std::uint8_t>& call : talked.calls) append_frame(bytes, bytes.size(), FrameKind::calls, call);
  const auto reader = JournalReader::open(bytes).value();
  EXPECT_TRUE(reader->header().seams.omits_tokens);
  SeamPlayer player(reader->header().seams);
  std::vector<std::vector<std::uint8_t>> again;
  JournalRecorder recorder(player.seams(), [&](std::span<const std::uint8_t> call) { again.emplace_back(call.begin(), call.end()); }, kKey);
  const auto core = Core::create(reader->header().config, recorder.seams()).value();
  std::size_t num_calls = 0, num_answers = 0;
  for (; reader->next(); ++num_calls) {
    num_answers += reader->answers().size();
    player.give(reader->answers());
    reader->play(*core);
    ASSERT_TRUE(player.status().has_value()) << num_calls << ": " << player.status().error().to_string();
    std::vector<std::uint8_t> one = journal_header_frame({});
    append_frame(one, one.size(), FrameKind::calls, again.at(num_calls));
    const auto made = JournalReader::open(one).value();
    ASSERT_TRUE(made->next());
    ASSERT_EQ(made->answer(), reader->answer()) << "call " << num_calls;
  }
  EXPECT_EQ(reader->damage(), "");
  EXPECT_EQ(num_calls, talked.num_calls);
  EXPECT_GT(num_answers, 10U);
  EXPECT_EQ(player.num_left(), 0U);
}

}  // namespace
}  // namespace quire::test
