#pragma once
// A run of the core in which a seed decides each call, each result and each answer of a seam, written down as it is made.
#include <fmt/format.h>
#include <fmt/ranges.h>

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

inline std::string text_of(const StepPlan& plan) {
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

}  // namespace quire::test
