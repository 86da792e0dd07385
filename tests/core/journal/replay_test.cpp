// A run of the core with seams that answer at random, recorded in bytes: played back without them it makes the same plans.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "fuzz/random_core.h"
#include "quire/core_calls.h"
#include "quire/hash_function.h"
#include "quire/seam_record.h"

namespace quire::test {
namespace {

std::string text_of(const StepPlan& plan) {
  std::string text = fmt::format("step {}:", plan.step.value);
  for (const Slot slot : plan.released) text += fmt::format(" -{}", slot.value);
  for (const AdmittedRequest& a : plan.admitted) text += fmt::format(" +{}@{}({})", a.id.value, a.slot.value, fmt::join(a.tokens, ","));
  for (const BlockTableDelta& d : plan.table_deltas) {
    text += fmt::format(" {}/{}", d.slot.value, d.group);
    for (const BlockId block : d.blocks) text += fmt::format(",{}", block.value);
  }
  for (const ScheduledRequest& s : plan.scheduled)
    text +=
        fmt::format(" r{}[{}+{}]{}d{}", s.id.value, s.num_computed_tokens, s.num_tokens, s.samples ? "s" : "", fmt::join(s.drafts, ","));
  return text + "\n";
}

// Names that are a sum of what they should be a digest of.
class SumNames final : public HashFunction {
 public:
  BlockHash hash(const BlockHash* parent, const HashInput& input) override {
    BlockHash name;
    name.bytes[0] = static_cast<std::uint8_t>(parent == nullptr ? 1 : parent->bytes[0] + 1);
    for (const TokenId token : input.tokens) name.bytes[1] = static_cast<std::uint8_t>(name.bytes[1] * 3 + token);
    return name;
  }
};

class OddTools final : public ToolNamer {
 public:
  std::string tool_of(const RequestView& request) override { return request.tokens.back() == 0 ? "" : "grep"; }
};

class OddEncoderCache final : public EncoderConnector {
 public:
  bool has(std::string_view identifier) override { return identifier == "a"; }
  void allocated(const RequestView& /*request*/, std::uint32_t /*index*/) override {}
};

// Calls at random, written down as they are made.
class RecordedRun {
 public:
  explicit RecordedRun(std::uint64_t seed) : in_(seed, 600), answers_(seed ^ 0xABCDU, 0), connector_(answers_), grammar_(answers_) {
    do config = random_config(in_);
    while (!config.validate());
    if (chance(in_, 3)) config.scheduler.policy = SchedulingPolicy::continuum;
    CoreSeams seams;
    if (chance(in_, 2)) seams.connector = &connector_;
    if (chance(in_, 2)) seams.grammar = &grammar_;
    if (chance(in_, 2)) seams.encoder_connector = &encoders_;
    if (chance(in_, 2)) seams.tools = &tools_;
    if (chance(in_, 2)) seams.hash = &names_;
    has_connector_ = seams.connector != nullptr;
    recorder_ = std::make_unique<SeamRecorder>(seams);
    core_ = Core::create(config, recorder_->seams()).value();
    for (; !in_.empty(); in_.count()) one_call();
  }

  CoreConfig config;
  std::string plans;
  std::uint32_t num_steps = 0;
  std::vector<std::uint8_t> calls() { return calls_.take(); }
  SeamRecord answers() { return recorder_->take(); }

 private:
  struct Outstanding {
    StepId step;
    std::vector<ScheduledRequest> scheduled;
  };

  void one_call() {
    now_ += 0.25;
    switch (in_.below(16)) {
      case 0:
        return finish();
      case 1:
        return continue_session();
      case 2:
        return fork();
      case 3:
        return drafts();
      case 4:
        return chance(in_, 4) ? reset() : pause();
      case 5:
      case 6:
      case 7:
        return add();
      default:
        return chance(in_, 2) ? schedule() : apply();
    }
  }

  void add() {
    std::vector<TokenId> prompt(1 + in_.below(config.scheduler.max_model_len));
    for (TokenId& token : prompt) token = static_cast<TokenId>(in_.below(2));
    const TokenId stops[] = {1};
    std::vector<MultimodalFeature> items;
    if (chance(in_, 5) && prompt.size() > 4) {
      const std::uint8_t mask[] = {1, 0, 1};
      items.push_back({"a", chance(in_, 2) ? PlaceholderRange(1, 3) : PlaceholderRange(1, mask)});
    }
    const RequestTags tags{.job = fmt::format("job{}", in_.below(4)), .is_last_step = chance(in_, 4), .hints = {{"size", "small"}}};
    NewRequest request{.id = RequestId{next_id_++}, .name = "name", .prompt = prompt, .arrival_time = now_};
    request.max_tokens = 1 + in_.below(6);
    request.stop_token_ids = std::span(stops).first(in_.below(2));
    request.cache_salt = chance(in_, 6) ? "salt" : "";
    request.priority = static_cast<std::int64_t>(in_.below(3)) - 1;
    request.multimodal = items;
    request.structured_output = chance(in_, 5);
    request.resumable = chance(in_, 8);
    request.tags = chance(in_, 2) ? &tags : nullptr;
    calls_.add(request, {.now = now_});
    (void)core_->add(request, {.now = now_});
  }

  void schedule() {
    if (core_->num_outstanding_plans() == config.limits.max_outstanding_plans) return;
    calls_.schedule({.now = now_, .random = next_id_});
    const StepPlan& plan = core_->schedule({.now = now_, .random = next_id_});
    plans += text_of(plan);
    ++num_steps;
    outstanding_.push_back({plan.step, {plan.scheduled.begin(), plan.scheduled.end()}});
  }

  void apply() {
    if (outstanding_.empty()) return;
    std::vector<SampledToken> sampled;
    for (const ScheduledRequest& s : outstanding_.front().scheduled)
      if (s.samples) sampled.push_back({s.id, static_cast<TokenId>(in_.below(3))});
    std::vector<RequestId> sent, received;
    for (std::uint64_t id = 0; has_connector_ && id < next_id_; ++id) {
      const auto view = core_->view(RequestId{id});
      if (!view || !chance(in_, 2)) continue;
      if (is_finished(view->status)) sent.push_back(view->id);
      if (view->status == RequestStatus::waiting_for_remote_kv && !told_.contains(id)) {
        received.push_back(view->id);
        told_.insert(id);
      }
    }
    std::vector<BlockId> invalid;
    if (has_connector_ && config.kv.groups.size() == 1 && chance(in_, 6)) invalid.push_back(BlockId{in_.below(config.kv.num_blocks)});
    const StepResult result{.step = outstanding_.front().step,
                            .sampled = sampled,
                            .has_connector_output = has_connector_,
                            .finished_sending = sent,
                            .finished_receiving = received,
                            .invalid_blocks = invalid};
    calls_.apply(result, {.now = now_});
    // Refused where a pin, not a transfer, keeps the blocks of one that was told of: then nothing has happened.
    if (!core_->apply(result, {.now = now_})) return;
    outstanding_.pop_front();
    std::erase_if(told_, [this](std::uint64_t id) {
      const auto view = core_->view(RequestId{id});
      return !view || view->status != RequestStatus::waiting_for_remote_kv;
    });
  }

  RequestId some_id() { return RequestId{in_.below(static_cast<std::uint32_t>(next_id_) + 1)}; }

  void finish() {
    const RequestId id = some_id();
    calls_.finish(id, RequestStatus::finished_aborted, {.now = now_});
    core_->finish(id, RequestStatus::finished_aborted, {.now = now_});
  }

  void continue_session() {
    const RequestId id = some_id();
    const std::vector<TokenId> tokens(1 + in_.below(4), 1);
    const SessionInput input{.tokens = tokens};
    const SessionInput* given = chance(in_, 4) ? nullptr : &input;
    calls_.continue_session(id, given, {.now = now_});
    (void)core_->continue_session(id, given, {.now = now_});
  }

  void fork() {
    const RequestId parent = some_id();
    ForkRequest child{.id = RequestId{next_id_++}, .arrival_time = now_, .max_tokens = in_.below(6), .resumable = chance(in_, 8)};
    if (chance(in_, 2)) child.next_token = 0;
    calls_.fork(parent, child, {.now = now_});
    (void)core_->fork(parent, child, {.now = now_});
  }

  void drafts() {
    if (config.speculation.num_spec_tokens == 0) return;
    const std::vector<TokenId> tokens(in_.below(config.speculation.num_spec_tokens + 1), 1);
    const Draft draft{some_id(), tokens};
    calls_.set_drafts({&draft, 1});
    core_->set_drafts({&draft, 1});
  }

  void reset() {
    calls_.reset_prefix_cache(true, has_connector_, {.now = now_});
    (void)core_->reset_prefix_cache(true, has_connector_, {.now = now_});
    calls_.reset_connector_cache();
    (void)core_->reset_connector_cache();
    calls_.reset_encoder_cache();
    core_->reset_encoder_cache();
    calls_.end_pins();
    core_->end_pins();
  }

  void pause() {
    const auto state = chance(in_, 4) ? PauseState::paused_new : PauseState::unpaused;
    calls_.set_pause_state(state);
    core_->set_pause_state(state);
    calls_.make_stats();
    (void)core_->make_stats();
  }

  SeedSource in_, answers_;
  RandomConnector<SeedSource> connector_;
  RandomGrammar<SeedSource> grammar_;
  OddEncoderCache encoders_;
  OddTools tools_;
  SumNames names_;
  bool has_connector_ = false;
  std::unique_ptr<SeamRecorder> recorder_;
  std::unique_ptr<Core> core_;
  CoreCallWriter calls_;
  std::deque<Outstanding> outstanding_;
  std::set<std::uint64_t> told_;
  std::uint64_t next_id_ = 1;
  double now_ = 100.0;
};

// Until the record or the calls end.
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
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    RecordedRun run(seed);
    const SeamRecord answers = run.answers();
    for (const SeamAnswer& answer : answers.answers) met.insert(answer.call);
    const auto decoded = decode_seam_record(encode(answers));
    ASSERT_TRUE(decoded.has_value()) << decoded.error().to_string();
    ASSERT_EQ(*decoded, answers);
    SeamPlayer player(*decoded);
    ASSERT_EQ(replay(run.config, run.calls(), player), run.plans) << "seed " << seed;
    ASSERT_TRUE(player.status().has_value()) << player.status().error().to_string();
    ASSERT_EQ(player.num_left(), 0U);
    num_steps += run.num_steps;
  }
  EXPECT_GT(num_steps, 10'000U);
  EXPECT_EQ(met.size(), 12U) << "every call that answers was met";
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
    EXPECT_NE(changed.status().error().to_string().find(fmt::format("answer {} ", middle)), std::string::npos)
        << changed.status().error().to_string();
    answers.answers.resize(middle);
    SeamPlayer shorter(std::move(answers));
    replay(run.config, calls, shorter);
    ASSERT_FALSE(shorter.status().has_value());
    EXPECT_NE(shorter.status().error().to_string().find("ends before"), std::string::npos);
    ++num_noticed;
  }
  EXPECT_GT(num_noticed, 30U);
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

class TwoTransfers final : public Connector {
 public:
  ExternalMatch match(const RequestView& /*request*/, std::uint32_t /*num_local_tokens*/) override { return {}; }
  void allocated(const RequestView& /*request*/, GroupBlocks /*blocks*/, std::uint32_t /*num_external_tokens*/) override {}
  bool finished(const RequestView& /*request*/, GroupBlocks /*blocks*/) override { return false; }
  void planned(const StepPlan& /*plan*/) override {}
  void plan_transfers(const StepPlan& /*plan*/, TransferList& transfers) override {
    const BlockId blocks[] = {{3}, {9}};
    const std::uint64_t places[] = {70, UINT64_MAX};
    transfers.add({.id = {}, .request = {5}, .need = TransferNeed::layer_by_layer, .group = 1, .blocks = blocks, .places = places});
    transfers.add({.id = {}, .request = {6}, .direction = TransferDirection::store, .blocks = {}, .places = {}});
  }
  void step_output() override {}
  bool reset() override { return true; }
};

TEST(Replay, TransfersAreAddedAsTheConnectorAddedThem) {
  TwoTransfers connector;
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
  EXPECT_EQ(again.added.transfers[1].direction, TransferDirection::store);
  record.answers[0].values.pop_back();
  SeamPlayer cut(record);
  cut.seams().connector->plan_transfers(plan, damaged);
  EXPECT_NE(cut.status().error().to_string().find("none to Connector::plan_transfers"), std::string::npos);
}

TEST(SeamRecordBytes, AnyBytesAreARecordOrAnError) {
  RecordedRun run(3);
  const std::vector<std::uint8_t> good = encode(run.answers());
  ASSERT_GT(good.size(), 100U);
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
