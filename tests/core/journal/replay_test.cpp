// Tests replays of recorded runs whose seams answer at random: without the seams the replay makes the same plans.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "core/journal/byte_stream.h"
#include "core/journal/question.h"
#include "core/journal/random_run.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

std::uint64_t naive_fnv(const std::vector<std::uint8_t>& bytes) {
  std::uint64_t digest = 0xcbf29ce484222325U;
  for (const std::uint8_t byte : bytes) {
    digest ^= byte;
    digest *= 0x100000001b3U;
  }
  return digest;
}

// Replays until the record or the calls end.
std::string replay(const CoreConfig& config, std::span<const std::uint8_t> calls, SeamPlayer& player) {
  const auto core = Core::create(config, player.seams()).value();
  CoreCallReader reader(calls);
  std::string plans;
  while (reader.next().value()) {
    if (const StepPlan* plan = reader.play(*core)) plans += text_of(*plan);
    if (!player.status()) break;
  }
  return plans;
}

TEST(Replay, MakesTheSamePlansFromBytesAlone) {
  std::uint64_t num_steps = 0;
  std::set<SeamCall> met;
  for (std::uint64_t seed = 0; seed < 340; ++seed) {
    RecordedRun run(seed, seed < 300 ? RunOf::first_rules : seed < 320 ? RunOf::fixes : RunOf::newer_rules);
    const SeamRecord answers = run.answers();
    for (const SeamAnswer& answer : answers.answers) met.insert(answer.call);
    const auto decoded = decode_seam_record(encode(answers));
    ASSERT_TRUE(decoded.has_value()) << decoded.error().to_string();
    ASSERT_EQ(*decoded, answers);
    const auto config = decode_core_config(encode(run.config));
    ASSERT_TRUE(config.has_value()) << config.error().to_string();
    ASSERT_EQ(*config, run.config);
    SeamPlayer player(*decoded);
    ASSERT_EQ(replay(*config, run.calls(), player), run.plans) << "seed " << seed;
    ASSERT_TRUE(player.status().has_value()) << player.status().error().to_string();
    ASSERT_EQ(player.num_left(), 0U);
    num_steps += run.num_steps;
  }
  EXPECT_GT(num_steps, 10'000U);
  EXPECT_EQ(met.size(), 13U) << "the runs cover every call that answers";
}

TEST(Replay, ForgetsTheSameBlocks) {
  CoreConfig config;
  config.block_size = 4;
  FullAttentionSpec spec;
  spec.block_size = 4;
  config.scheduler.max_model_len = 64;
  config.kv = {.num_blocks = 16, .groups = {{.layer_names = {"layer"}, .spec = spec, .layer_specs = {}}}, .tensors = {}};
  const std::vector<TokenId> prompt(12, 7);
  CoreCallWriter calls;
  calls.sink().on_call(core_call::Add{{.id = RequestId{1}, .prompt = prompt}, {}});
  calls.sink().on_call(core_call::Schedule{});
  calls.sink().on_call(core_call::ForgetBlocks{RequestId{1}});
  calls.sink().on_call(core_call::Add{{.id = RequestId{2}, .prompt = prompt}, {}});
  calls.sink().on_call(core_call::Schedule{});
  const std::vector<std::uint8_t> bytes = calls.take();
  const auto core = Core::create(config).value();
  CoreCallReader reader(bytes);
  while (reader.next().value()) reader.play(*core);
  EXPECT_EQ(core->view(RequestId{2}).value().num_cached_tokens, 0) << "the count is 8 without ForgetBlocks";
}

// FixOptions::early_loads is newer than the recorded decisions, so no record covers it.
TEST(Replay, PlaysEarlyLoadsBack) {
  std::uint32_t num_other = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    RecordedRun run(seed, RunOf::early_loads);
    num_other += RecordedRun(seed).plans != run.plans ? 1 : 0;
    const CoreConfig config = decode_core_config(encode(run.config)).value();
    ASSERT_TRUE(config.fixes.early_loads);
    SeamPlayer player(run.answers());
    ASSERT_EQ(replay(config, run.calls(), player), run.plans) << "seed " << seed;
    ASSERT_TRUE(player.status().has_value()) << player.status().error().to_string();
    ASSERT_EQ(player.num_left(), 0U);
  }
  EXPECT_GT(num_other, 20U) << "the test covers too few cases";
}

TEST(Replay, StopsAtAQuestionThatTheRecordDoesNotAnswer) {
  std::uint32_t num_noticed = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    RecordedRun run(seed);
    SeamRecord answers = run.answers();
    const auto calls = run.calls();
    if (answers.answers.size() < 4) continue;
    SeamRecord other = answers;
    const std::size_t middle = answers.answers.size() / 2;
    other.answers[middle].question ^= 1U;
    SeamPlayer changed(std::move(other));
    replay(run.config, calls, changed);
    ASSERT_FALSE(changed.status().has_value());
    EXPECT_EQ(changed.status().error().field, "record");
    const std::string error = changed.status().error().to_string();
    EXPECT_NE(error.find(fmt::format("answer {} is for ", middle)), std::string::npos) << error;
    EXPECT_NE(error.find("with other arguments or in another state"), std::string::npos) << error;
    answers.answers.resize(middle);
    SeamPlayer shorter(std::move(answers));
    replay(run.config, calls, shorter);
    ASSERT_FALSE(shorter.status().has_value());
    EXPECT_NE(shorter.status().error().to_string().find("ends before"), std::string::npos);
    ++num_noticed;
  }
  EXPECT_GT(num_noticed, 30U);
}

TEST(Replay, NamesTheRequestThatTheRecordAnswersFor) {
  for (std::uint64_t seed = 0;; ++seed) {
    ASSERT_LT(seed, 100U);
    RecordedRun run(seed);
    SeamRecord answers = run.answers();
    if (answers.answers.size() < 4) continue;
    const std::size_t middle = answers.answers.size() / 2;
    answers.answers[middle].request = RequestId{987654};
    SeamPlayer player(answers);
    replay(run.config, run.calls(), player);
    ASSERT_FALSE(player.status().has_value());
    const std::string error = player.status().error().to_string();
    EXPECT_NE(error.find("for request 987654, but the core calls "), std::string::npos) << error;
    return;
  }
}

// Alternates between true and false in every answer that allows it.
class InTurn final : public QuietConnector, public EncoderConnector, public Grammar {
 public:
  ExternalMatch match(const RequestView& /*request*/, std::uint32_t /*num_local_tokens*/) override {
    return {.num_tokens = {}, .load_async = flip()};
  }
  using QuietConnector::allocated;
  bool finished(const RequestView& /*request*/, GroupBlocks /*blocks*/) override { return flip(); }
  bool reset() override { return flip(); }
  bool has(std::string_view /*identifier*/) override { return flip(); }
  void allocated(const RequestView& /*request*/, std::uint32_t /*index*/) override {}
  bool ready(RequestId /*id*/) override { return flip(); }
  bool failed(RequestId /*id*/) override { return flip(); }
  bool should_advance(const RequestView& /*request*/) override { return flip(); }
  bool accept(RequestId /*id*/, std::span<const TokenId> /*tokens*/) override { return flip(); }
  std::uint32_t count_valid(RequestId /*id*/, std::span<const TokenId> /*drafts*/) override { return flip() ? 3 : 0; }
  bool fork(RequestId /*parent*/, RequestId /*child*/, std::uint32_t /*num_outputs*/) override { return flip(); }

 private:
  bool flip() { return last_ = !last_; }
  bool last_ = false;
};

std::vector<std::uint32_t> ask_all(const CoreSeams& seams) {
  const TokenId tokens[] = {5, 6, 7};
  RequestView view;
  view.id = RequestId{3};
  view.tokens = tokens;
  std::vector<std::uint32_t> answers;
  for (int round = 0; round < 2; ++round) {
    const ExternalMatch match = seams.connector->match(view, 2);
    answers.insert(answers.end(), {match.num_tokens.value_or(99), match.load_async ? 1U : 0U});
    for (const bool answer : {seams.connector->finished(view, {}), seams.grammar->failed(view.id), seams.connector->reset(),
                              seams.encoder_connector->has("image"), seams.grammar->failed(view.id), seams.grammar->ready(view.id),
                              seams.grammar->should_advance(view), seams.grammar->accept(view.id, tokens)})
      answers.push_back(answer ? 1 : 0);
    answers.push_back(seams.grammar->count_valid(view.id, tokens));
    answers.push_back(seams.grammar->fork(view.id, RequestId{4}, 2) ? 1 : 0);
  }
  return answers;
}

TEST(Replay, RecorderAndPlayerForwardAnswers) {
  InTurn itself, recorded;
  const auto expected = ask_all({.connector = &itself, .encoder_connector = &itself, .grammar = &itself});
  EXPECT_EQ(expected, (std::vector<std::uint32_t>{99, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 99, 0, 1, 0, 1, 0, 1, 0, 1, 0, 3, 0}));
  SeamRecorder recorder({.connector = &recorded, .encoder_connector = &recorded, .grammar = &recorded});
  EXPECT_EQ(ask_all(recorder.seams()), expected);
  SeamRecord record = recorder.take();
  for (const SeamAnswer& answer : record.answers)
    if (answer.call == SeamCall::grammar_ready) EXPECT_LE(answer.values.at(0), 1U) << "a flag is 0 or 1";
  SeamPlayer player(std::move(record));
  EXPECT_EQ(ask_all(player.seams()), expected);
  EXPECT_EQ(player.num_left(), 0U);
}

// Records of earlier versions stay readable, so the digest of a question never changes.
TEST(Replay, QuestionsHaveTheDigestsOfFnv) {
  EXPECT_EQ(SeamQuestion().digest(), 0xcbf29ce484222325U);
  EXPECT_EQ(SeamQuestion().add(std::uint64_t{0x0102030405060708}).digest(), naive_fnv({8, 7, 6, 5, 4, 3, 2, 1}));
  EXPECT_EQ(SeamQuestion().add(std::string_view("ab")).digest(), naive_fnv({2, 0, 0, 0, 0, 0, 0, 0, 'a', 'b'}));
}

TEST(Replay, QuestionOfAHashCoversAllHashedFields) {
  const TokenId tokens[] = {5, 6}, others[] = {5, 7};
  const BlockHash parent{};
  const MultimodalFeature images[] = {{"a", {1, 1}}}, moved[] = {{"a", {0, 1}}}, renamed[] = {{"b", {1, 1}}};
  std::set<std::uint64_t> digests;
  const auto ask = [&](const BlockHash* before, auto&& change) {
    HashInput input{};
    input.tokens = tokens;
    change(input);
    digests.insert(SeamQuestion().add(before, input).digest());
  };
  ask(nullptr, [](HashInput&) {});
  ask(&parent, [](HashInput&) {});
  ask(nullptr, [&](HashInput& input) { input.tokens = others; });
  ask(nullptr, [](HashInput& input) { input.start = 4; });
  ask(nullptr, [](HashInput& input) { input.lora_name = "a"; });
  ask(nullptr, [](HashInput& input) { input.cache_salt = "a"; });
  ask(nullptr, [&](HashInput& input) { input.multimodal = images; });
  ask(nullptr, [&](HashInput& input) { input.multimodal = moved; });
  ask(nullptr, [&](HashInput& input) { input.multimodal = renamed; });
  EXPECT_EQ(digests.size(), 9U);
}

TEST(SeamRecordBytes, RefuseAnUnknownSeam) {
  std::vector<std::uint8_t> bytes = encode(SeamRecord{.has_connector = true, .has_hash = true, .answers = {}});
  ASSERT_TRUE(decode_seam_record(bytes).has_value());
  const std::vector<std::uint8_t> without = encode(SeamRecord{.has_hash = true, .omits_tokens = true, .answers = {}});
  EXPECT_TRUE(decode_seam_record(without).value().omits_tokens);
  EXPECT_FALSE(decode_seam_record(bytes).value().omits_tokens);
  bytes.back() |= 64U;  // the flags are the last byte if there is no answer
  EXPECT_FALSE(decode_seam_record(bytes).has_value());
}

TEST(ByteForm, RefusesACountAboveTheRemainingBytes) {
  const std::uint8_t enough[] = {2, 7, 7}, one_less[] = {2, 7};
  ByteReader good(enough), bad(one_less);
  EXPECT_EQ(good.count(), 2U);
  EXPECT_FALSE(good.failed());
  EXPECT_EQ(bad.count(), 0U);
  EXPECT_TRUE(bad.failed());
}

struct Added {
  std::vector<Transfer> transfers;
  std::vector<std::vector<BlockId>> blocks;
  std::vector<std::vector<std::uint64_t>> places;
};

class AddedTransfers final : public TransferList {
 public:
  std::optional<TransferId> add(const Transfer& transfer) override {
    added.transfers.push_back(transfer);
    added.blocks.emplace_back(transfer.blocks.begin(), transfer.blocks.end());
    added.places.emplace_back(transfer.places.begin(), transfer.places.end());
    return TransferId{added.transfers.size()};
  }
  Added added;
};

TEST(Replay, AddsTransfersInTheConnectorsOrder) {
  const BlockId blocks[] = {{3}, {9}};
  const std::uint64_t places[] = {70, UINT64_MAX};
  ScriptedConnector connector;
  connector.transfers = {
      {.id = {}, .request = {5}, .need = TransferNeed::layer_by_layer, .group = 1, .tier = 2, .blocks = blocks, .places = places},
      transfer_of(RequestId{6}, {}, TransferDirection::store)};
  SeamRecorder recorder({.connector = &connector});
  StepPlan plan;
  AddedTransfers first, again, damaged;
  recorder.seams().connector->plan_transfers(plan, first);
  SeamRecord record = recorder.take();
  SeamPlayer player(record);
  player.seams().connector->plan_transfers(plan, again);
  ASSERT_TRUE(player.status().has_value());
  ASSERT_EQ(again.added.transfers.size(), 2U);
  EXPECT_EQ(again.added.blocks, first.added.blocks);
  EXPECT_EQ(again.added.places, first.added.places);
  EXPECT_EQ(again.added.transfers[0].request, RequestId{5});
  EXPECT_EQ(again.added.transfers[0].need, TransferNeed::layer_by_layer);
  EXPECT_EQ(again.added.transfers[0].group, 1U);
  EXPECT_EQ(again.added.transfers[0].tier, 2U);
  EXPECT_EQ(again.added.transfers[1].direction, TransferDirection::store);
  record.answers[0].values.pop_back();
  SeamPlayer cut(record);
  cut.seams().connector->plan_transfers(plan, damaged);
  EXPECT_NE(cut.status().error().to_string().find("is not a valid answer of Connector::plan_transfers"), std::string::npos);
}

// Returns a configuration of four blocks and the null block.
CoreConfig four_blocks() {
  CoreConfig config;
  config.block_size = 4;
  FullAttentionSpec spec;
  spec.block_size = 4;
  spec.num_kv_heads = spec.head_size = 1;
  config.kv = {.num_blocks = 5, .groups = {{.layer_names = {"layer"}, .spec = spec, .layer_specs = {}}}, .tensors = {}};
  config.scheduler.max_model_len = 16;
  return config;
}

// make_stats() resets the counts since the previous call.
TEST(Replay, RecordsMakeStatsAsACall) {
  CoreCallWriter calls;
  const CoreConfig config = four_blocks();
  const auto core = Core::create(config, {.calls = &calls.sink()}).value();
  (void)core->make_stats();
  const std::vector<std::uint8_t> bytes = calls.take();
  CoreCallReader reader(bytes);
  const auto again = Core::create(config).value();
  std::uint32_t num_calls = 0;
  for (; reader.next().value(); ++num_calls) reader.play(*again);
  EXPECT_EQ(num_calls, 1U);
}

// The costs of moving and computing a request decide whether it is swapped out.
TEST(Replay, RecordsChangedSwapCostsAsACall) {
  CoreConfig config = four_blocks();
  config.scheduler.async_scheduling = false;
  config.swap = {.num_swap_slots = 2, .swap_choice = SwapChoice::measured};
  CoreCallWriter calls;
  const std::vector<TokenId> prompts[] = {{1, 2, 3, 4, 5, 6, 7, 8}, {11, 12, 13, 14, 15, 16, 17}};
  const auto first = Core::create(config, {.calls = &calls.sink()}).value();
  for (std::uint64_t id = 0; id < 2; ++id)
    ASSERT_TRUE(first->add({.id = RequestId{id}, .prompt = prompts[id], .max_tokens = 4}).has_value());
  for (int i = 0; i < 3; ++i) first->set_swap_costs({.out_bytes_per_s = 1e6, .in_bytes_per_s = 1e6, .prefill_tokens_per_s = 10.0});
  first->schedule();
  const SampledToken sampled[] = {{RequestId{0}, 9}, {RequestId{1}, 18}};
  ASSERT_TRUE(first->apply({.step = StepId{0}, .sampled = sampled}).has_value());
  first->schedule();
  ASSERT_EQ(first->counters().num_swapped_out, 1U);
  const auto core = Core::create(config).value();
  const std::vector<std::uint8_t> bytes = calls.take();
  CoreCallReader reader(bytes);
  std::uint32_t num_calls = 0;
  for (; reader.next().value(); ++num_calls) reader.play(*core);
  EXPECT_EQ(core->counters().num_swapped_out, 1U);
  EXPECT_EQ(num_calls, 6U) << "costs are recorded only when they change";
}

TEST(SeamRecordBytes, AnyBytesAreARecordOrAnError) {
  std::vector<std::uint8_t> good;
  for (std::uint64_t seed = 3; good.size() < 1000; ++seed) good = encode(RecordedRun(seed).answers());
  Random random(7);
  std::uint32_t num_refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::uint8_t> bytes(good.begin(),
                                    good.begin() + static_cast<std::ptrdiff_t>(random.below(std::min<std::size_t>(good.size(), 400))));
    for (std::uint64_t changes = random.below(4); changes > 0 && !bytes.empty(); --changes)
      bytes[random.below(bytes.size())] = static_cast<std::uint8_t>(random.next());
    const auto record = decode_seam_record(bytes);
    if (record) ASSERT_EQ(decode_seam_record(encode(*record)).value(), *record);
    if (!record) ASSERT_EQ(record.error().field, "record");
    num_refused += record ? 0 : 1;
  }
  EXPECT_GT(num_refused, 1000U);
}

TEST(CoreCallBytes, AnyBytesAreCallsOrAnError) {
  RecordedRun run(3);
  const std::vector<std::uint8_t> good = run.calls();
  ASSERT_GT(good.size(), 1000U);
  Random random(8);
  std::uint32_t num_refused = 0, num_read = 0;
  for (int i = 0; i < 5'000; ++i) {
    std::vector<std::uint8_t> bytes = good;
    bytes.resize(random.below(2000));
    for (std::uint64_t changes = random.below(4); changes > 0 && !bytes.empty(); --changes)
      bytes[random.below(bytes.size())] = static_cast<std::uint8_t>(random.next());
    CoreCallReader reader(bytes);
    Result<bool> read = reader.next();
    for (; read && *read; read = reader.next()) ++num_read;
    if (!read) ASSERT_EQ(read.error().field, "calls");
    num_refused += read ? 0 : 1;
  }
  EXPECT_GT(num_refused, 1000U);
  EXPECT_GT(num_read, 10'000U);
}

}  // namespace
}  // namespace quire::test
