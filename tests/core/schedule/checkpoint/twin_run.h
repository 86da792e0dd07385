#pragma once
// A core that is given calls at random, with whatever it can have, and from time to time a second one that is made from its checkpoint and
// given the same calls: all that they tell is the same, and so is the checkpoint of both when the next one is made.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/journal/told.h"
#include "core/schedule/checkpoint/twin_config.h"
#include "core/schedule/checkpoint/twin_seams.h"
#include "fuzz/random_core.h"

namespace quire::test {

// Seen where a checkpoint was made.
struct TwinsMet {
  std::uint64_t checkpoints = 0, calls = 0, plans = 0;
  std::uint64_t in_flight = 0, transfers = 0, swapped = 0, pinned = 0, sessions = 0, placeholders = 0, drafts = 0, loading = 0;
  std::uint64_t encoder_outputs = 0, residency = 0, grammars = 0, stopped = 0, gone = 0, windows = 0, priorities = 0;
  CoreCounters counters;  // of all runs
};

class TwinRun {
 public:
  TwinRun(std::uint64_t seed, std::uint64_t num_calls, bool newer_rules = false) : in_(seed, num_calls) {
    for (bool is_valid = false; !is_valid;) {
      config = draw_config(in_, newer_rules);
      is_valid = config.validate().has_value();
      if (is_valid && !Core::create(config)) has_all_hashes = is_valid = false;
    }
    first_.seams.numbers.random = Random(seed ^ 0xABCDU);
    first_.seams.numbers.block_size = config.block_size;
    first_.seams.numbers.moves = chance(in_, 2);
    has_connector_ = !config.mamba_align && chance(in_, 2);
    has_grammar_ = chance(in_, 2);
    first_.core = Core::create(config, seams_of(first_)).value();
  }

  void run(TwinsMet& met) {
    for (; !in_.empty() && !testing::Test::HasFailure(); in_.count()) {
      one_call();
      ++met.calls;
      ASSERT_TRUE(takes_results_);
      if (second_ != nullptr) ASSERT_EQ(second_->told.digest(), first_.told.digest()) << "after call " << met.calls << ", " << last_call_;
      if (chance(in_, 20)) make_twin(met);
    }
    count_all(met);
  }

  // Calls a core that was made by restored(), of any bytes, in place of its own, until a result is not taken.
  void go_on(std::unique_ptr<Core> core, std::uint64_t seed, std::uint64_t num_calls) {
    second_.reset();
    first_.core = std::move(core);
    spare_.seams.numbers.wanted.clear();  // of requests that it may not have
    in_ = SeedSource(seed, num_calls);
    outstanding_.clear();
    open_.clear();
    takes_results_ = true;
    for (std::uint32_t i = 0; i < first_.core->num_outstanding_plans(); ++i) await(first_.core->outstanding_plan(i));
    for (; !in_.empty() && takes_results_; in_.count()) {
      one_call();
      first_.core->check_invariants();
    }
  }

  CoreConfig config;
  bool has_all_hashes = true;  // else the run is another one in this build
  [[nodiscard]] std::uint64_t digest() const { return first_.told.digest(); }
  [[nodiscard]] const Core& core() const { return *first_.core; }
  // Bound to nothing that lasts: for looking at.
  [[nodiscard]] Result<std::unique_ptr<Core>> restored(std::span<const std::uint8_t> bytes) {
    spare_.seams.numbers = first_.seams.numbers;
    return Core::restore(config, seams_of(spare_), bytes);
  }

 private:
  struct Side {
    TwinSeams seams;
    Told told{true};
    std::unique_ptr<Core> core;
  };
  struct Scheduled {
    RequestId id;
    bool samples, pools;
    std::uint32_t num_drafts;
  };
  struct Outstanding {
    StepId step;
    std::vector<Scheduled> scheduled;
  };
  struct Open {
    TransferId id;
    StepId step;
    bool is_load;
    std::vector<BlockId> blocks;
  };

  CoreSeams seams_of(Side& side) const {
    CoreSeams seams{.events = &side.told};
    if (has_connector_) seams.connector = &side.seams;
    if (has_grammar_) seams.grammar = &side.seams;
    if (config.decisions == DecisionProfile::vllm_0_19) seams.encoder_connector = &side.seams;
    seams.tools = &side.seams;
    return seams;
  }

  // Makes a call on both; what it gives is told to each side's digest.
  template <class Call>
  void on_both(const char* name, Call call) {
    last_call_ = name;
    call(first_);
    if (second_ != nullptr) call(*second_);
  }

  void tell_state(Side& side) {
    CoreSnapshot snapshot;
    side.core->snapshot(snapshot);
    side.told(snapshot, side.core->counters(), side.core->next_deadline(), side.core->has_work(), side.core->has_finished_requests(),
              side.core->all_blocks_free(), snapshot.swapped);
    for (const CoreSnapshot::Request& r : snapshot.requests)
      side.told(r.num_tokens_in_flight, r.num_stale_tokens, r.drops_stale, r.deferred);
    side.core->visit([&side](QueueKind kind, const RequestView& view) { side.told(kind, view); });
  }

  void make_twin(TwinsMet& met) {
    const std::vector<std::uint8_t> bytes = first_.core->checkpoint();
    if (second_ != nullptr) ASSERT_EQ(difference(second_->core->checkpoint(), bytes), "") << "both have decided alike";
    auto twin = std::make_unique<Side>();
    twin->seams.numbers = first_.seams.numbers;
    auto made = Core::restore(config, seams_of(*twin), bytes);
    ASSERT_TRUE(made.has_value()) << made.error().to_string() << " after " << last_call_;
    twin->core = std::move(*made);
    twin->core->check_invariants();
    ASSERT_EQ(difference(twin->core->checkpoint(), bytes), "") << "what was read is written alike";
    // Whoever runs them goes on from what is outstanding.
    twin->told = first_.told;
    second_ = std::move(twin);
    on_both("checkpoint", [this](Side& side) {
      for (std::uint32_t i = 0; i < side.core->num_outstanding_plans(); ++i) tell_plan(side, side.core->outstanding_plan(i));
      tell_state(side);
    });
    count(met);
  }

  // Empty: there is none.
  static std::string difference(const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b) {
    if (a == b) return {};
    return fmt::format("{} and {} bytes, alike up to byte {}", a.size(), b.size(), std::ranges::mismatch(a, b).in1 - a.begin());
  }

  // As it was given, but for what is gone: lists of a transfer that is over, and tokens of a session that went on meanwhile.
  void tell_plan(Side& side, const StepPlan& plan) {
    const auto is_session = [&side](RequestId id) {
      const auto view = side.core->view(id);
      return !view || view->resumable;
    };
    std::vector<AdmittedRequest> admitted(plan.admitted.begin(), plan.admitted.end());
    std::vector<ScheduledRequest> scheduled(plan.scheduled.begin(), plan.scheduled.end());
    for (AdmittedRequest& a : admitted)
      if (is_session(a.id)) a.tokens = {};
    for (ScheduledRequest& s : scheduled)
      if (is_session(s.id)) s.new_tokens = {};
    StepPlan told = plan;
    told.admitted = admitted;
    told.scheduled = scheduled;
    told.transfers = {};
    side.told(told);
    for (const Transfer& transfer : plan.transfers) {
      const bool is_open = std::ranges::find(open_, transfer.id, &Open::id) != open_.end();
      side.told(transfer.id, transfer.request, transfer.direction, transfer.need, transfer.group, transfer.tier);
      if (is_open) side.told(transfer.blocks, transfer.places);
    }
  }

  void count(TwinsMet& met) {
    CoreSnapshot now;
    first_.core->snapshot(now);
    const CoreCounters counters = first_.core->counters();
    ++met.checkpoints;
    met.in_flight += outstanding_.empty() ? 0 : 1;
    met.transfers += counters.num_open_transfers;
    met.swapped += now.swapped.size();
    met.pinned += counters.num_pinned;
    met.encoder_outputs += now.encoder_cached.size();
    met.residency += now.residency.size();
    met.stopped += counters.is_admission_stopped ? 1 : 0;
    met.windows += config.kv.groups.size() > 1 ? 1 : 0;
    met.priorities += config.scheduler.policy == SchedulingPolicy::priority && now.waiting.size() > 2 ? 1 : 0;
    for (const CoreSnapshot::Request& request : now.requests) {
      met.sessions += request.status == RequestStatus::waiting_for_input ? 1 : 0;
      met.grammars += request.status == RequestStatus::waiting_for_grammar ? 1 : 0;
      met.loading += request.status == RequestStatus::waiting_for_remote_kv ? 1 : 0;
      met.placeholders += request.num_output_placeholders > 0 ? 1 : 0;
      met.drafts += request.draft_tokens.empty() ? 0 : 1;
    }
    for (const Outstanding& plan : outstanding_)
      for (const Scheduled& s : plan.scheduled) met.gone += first_.core->view(s.id) ? 0 : 1;
  }

  void count_all(TwinsMet& met) const {
    const CoreCounters c = first_.core->counters();
    met.counters.num_steps += c.num_steps;
    met.counters.num_preemptions += c.num_preemptions;
    met.counters.num_evicted_blocks += c.num_evicted_blocks;
    met.counters.num_forks += c.num_forks;
    met.counters.num_copied_blocks += c.num_copied_blocks;
    met.counters.num_swapped_in += c.num_swapped_in;
    met.counters.num_swaps_lost += c.num_swaps_lost;
    met.counters.prefix_hit_tokens += c.prefix_hit_tokens;
    met.counters.external_hit_tokens += c.external_hit_tokens;
  }

  void one_call() {
    now_ += 0.25;
    switch (in_.below(18)) {
      case 0:
        return finish();
      case 1:
        return continue_session();
      case 2:
        return fork();
      case 3:
        return drafts();
      case 4:
        return operate();
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
    const std::vector<std::byte> embeds(chance(in_, 8) ? prompt.size() * 4 : 0, std::byte{9});
    const TokenId stops[] = {1}, ends[] = {2};
    std::vector<MultimodalFeature> items;
    if (prompt.size() > 9 && (config.encoder.is_encoder_decoder || chance(in_, 4))) {
      const std::uint8_t mask[] = {1, 0, 1};
      items.push_back({fmt::format("image {}", in_.below(3)), chance(in_, 2) ? PlaceholderRange(1, 3) : PlaceholderRange(1, mask)});
      if (!config.encoder.is_encoder_decoder) items.push_back({chance(in_, 3) ? "b" : "c", PlaceholderRange(5, 2)});
    }
    const std::string adapter = fmt::format("adapter{}", in_.below(3));
    const RequestTags tags{.job = fmt::format("job{}", in_.below(4)),
                           .is_last_step = chance(in_, 4),
                           .tool = chance(in_, 2) ? "ls" : "",
                           .tenant = chance(in_, 4) ? "tenant" : "",
                           .hints = {{"size", "small"}}};
    NewRequest request{.id = RequestId{next_id_++}, .name = "name", .prompt = prompt, .arrival_time = now_};
    request.max_tokens = 1 + in_.below(12);
    request.stop_token_ids = std::span(stops).first(in_.below(8) == 0 ? 1 : 0);
    request.eos_ids = std::span(ends).first(in_.below(8) == 0 ? 1 : 0);
    request.cache_salt = chance(in_, 6) ? "salt" : "";
    request.priority = static_cast<std::int64_t>(in_.below(3)) - 1;
    request.multimodal = items;
    request.prompt_embeds = embeds;
    request.structured_output = chance(in_, 5);
    request.resumable = chance(in_, 6);
    request.pooling = !request.resumable && chance(in_, 10);
    if (request.pooling) request.max_tokens = 1;
    request.skip_reading_prefix_cache = chance(in_, 8);
    request.loads_nothing = chance(in_, 8);
    request.client_index = in_.below(2);
    request.min_tokens = in_.below(3);
    request.repetition = chance(in_, 4) ? RepetitionDetection{1, 2, 2} : RepetitionDetection{};
    request.lora_id = adapter.back() - '0';
    if (request.lora_id != 0) request.lora_name = adapter;
    request.tags = chance(in_, 2) ? &tags : nullptr;
    on_both("add", [&](Side& side) { side.told(side.core->add(request, {.now = now_}).has_value()); });
  }

  void schedule() {
    if (first_.core->num_outstanding_plans() == config.limits.max_outstanding_plans) return;
    const std::uint64_t random = in_.below(1000);
    on_both("schedule", [&](Side& side) { side.told(side.core->schedule({.now = now_, .random = random})); });
    await(first_.core->outstanding_plan(first_.core->num_outstanding_plans() - 1));
  }

  void await(const StepPlan& plan) {
    outstanding_.push_back({plan.step, {}});
    for (const ScheduledRequest& s : plan.scheduled)
      outstanding_.back().scheduled.push_back({s.id, s.samples, s.pools, static_cast<std::uint32_t>(s.drafts.size())});
    for (const Transfer& transfer : plan.transfers)
      open_.push_back(
          {transfer.id, plan.step, transfer.direction == TransferDirection::load, {transfer.blocks.begin(), transfer.blocks.end()}});
  }

  void apply() {
    if (outstanding_.empty()) return;
    const Outstanding& oldest = outstanding_.front();
    std::vector<SampledToken> sampled;
    std::vector<RequestId> sent, received, pooled;
    for (const Scheduled& s : oldest.scheduled) {
      if (s.pools) pooled.push_back(s.id);
      for (std::uint32_t n = s.samples ? 1 + in_.below(s.num_drafts + 1) : 0; n > 0; --n)
        sampled.push_back({s.id, static_cast<TokenId>(in_.below(3))});
    }
    const bool tells_lists = has_connector_ && !first_.seams.numbers.moves;
    if (tells_lists) draw_lists(sent, received);
    std::vector<BlockId> invalid;
    if (tells_lists && config.kv.groups.size() == 1 && chance(in_, 6)) invalid.push_back(BlockId{in_.below(config.kv.num_blocks)});
    const std::vector<TransferCompletion> over = draw_completions(oldest.step);
    StepResult result{.step = oldest.step,
                      .sampled = sampled,
                      .pooled = pooled,
                      .has_connector_output = tells_lists,
                      .finished_sending = sent,
                      .finished_receiving = received,
                      .invalid_blocks = invalid,
                      .completions = over};
    if (!take(result)) {
      // Refused as a whole, where it tells of what cannot be: a load that nobody waits for, with several groups; or of one who is pinned.
      result.completions = {};
      result.finished_sending = result.finished_receiving = {};
      takes_results_ = take(result);
      if (!takes_results_) return;
    }
    for (const TransferCompletion& completion : result.completions)
      std::erase_if(open_, [&](const Open& open) { return open.id == completion.transfer; });
    outstanding_.pop_front();
    std::erase_if(received_, [this](std::uint64_t id) {
      const auto view = first_.core->view(RequestId{id});
      return !view || view->status != RequestStatus::waiting_for_remote_kv;
    });
  }

  bool take(const StepResult& result) {
    bool is_taken = false;
    on_both("apply", [&](Side& side) {
      side.told(side.core->spoiled_by(result));
      const auto applied = side.core->apply(result, {.now = now_});
      is_taken = applied.has_value();
      side.told(is_taken);
      if (applied) side.told(**applied);
    });
    return is_taken;
  }

  void draw_lists(std::vector<RequestId>& sent, std::vector<RequestId>& received) {
    for (std::uint64_t id = 0; id < next_id_; ++id) {
      const auto view = first_.core->view(RequestId{id});
      if (!view || !chance(in_, 2)) continue;
      if (is_finished(view->status)) sent.push_back(view->id);
      if (view->status != RequestStatus::waiting_for_remote_kv || is_swapped(view->id) || received_.contains(id)) continue;
      received.push_back(view->id);
      received_.insert(id);
    }
  }

  [[nodiscard]] bool is_swapped(RequestId id) const {
    CoreSnapshot now;
    first_.core->snapshot(now);
    return std::ranges::any_of(now.swapped, [id](const auto& swapped) { return swapped.first == id; });
  }

  std::vector<TransferCompletion> draw_completions(StepId step) {
    std::vector<TransferCompletion> over;
    for (const Open& open : open_) {
      if (open.step > step || chance(in_, 2)) continue;
      TransferCompletion& one = over.emplace_back(TransferCompletion{.transfer = open.id, .bytes = 5, .seconds = 0.5});
      if (chance(in_, 5)) one.outcome = TransferOutcome::failed;
      if (open.is_load && one.outcome == TransferOutcome::failed && chance(in_, 2)) one.bad_blocks = std::span(open.blocks).first(1);
    }
    return over;
  }

  // Rather one that is still open.
  RequestId some_id() {
    const auto newest = static_cast<std::uint32_t>(next_id_);
    const std::uint32_t back = in_.below(chance(in_, 4) ? newest + 1 : std::min(newest, 8U) + 1);
    return RequestId{newest - back};
  }

  void finish() {
    const RequestStatus status = chance(in_, 4) ? RequestStatus::finished_error : RequestStatus::finished_aborted;
    if (chance(in_, 3)) {
      const RequestId ids[] = {some_id(), some_id(), some_id()};
      return on_both("finish all", [&](Side& side) {
        std::vector<RequestId> finished;
        side.core->finish(ids, status, finished, {.now = now_});
        side.told(finished);
      });
    }
    const RequestId id = some_id();
    on_both("finish", [&](Side& side) { side.told(side.core->finish(id, status, {.now = now_})); });
  }

  void continue_session() {
    const RequestId id = some_id();
    const std::vector<TokenId> tokens(1 + in_.below(4), 1);
    const std::vector<MultimodalFeature> items(tokens.size() > 2 && chance(in_, 3) ? 1 : 0, {"image 1", PlaceholderRange(0, 2)});
    const SessionInput input{.tokens = tokens, .multimodal = items, .arrival_time = now_, .min_tokens = in_.below(2)};
    const SessionInput* given = chance(in_, 4) ? nullptr : &input;
    on_both("continue_session", [&](Side& side) { side.told(side.core->continue_session(id, given, {.now = now_}).has_value()); });
  }

  void fork() {
    const RequestId parent = some_id();
    ForkRequest child{.id = RequestId{next_id_++}, .arrival_time = now_, .resumable = chance(in_, 4)};
    child.waits_for_input = child.resumable && chance(in_, 2);
    if (chance(in_, 2)) child.max_tokens = 1 + in_.below(12);
    if (chance(in_, 2)) child.next_token = 0;
    on_both("fork", [&](Side& side) { side.told(side.core->fork(parent, child, {.now = now_}).has_value()); });
  }

  void drafts() {
    if (config.speculation.num_spec_tokens == 0) return;
    // The first stage of a pipeline proposes nothing behind what it does not know yet.
    if (config.parallel.pipeline_parallel && !config.scheduler.async_scheduling && !outstanding_.empty()) return;
    const std::vector<TokenId> tokens(in_.below(config.speculation.num_spec_tokens + 1), 1);
    const Draft draft{some_id(), tokens};
    const bool into_plan = !outstanding_.empty() && chance(in_, 3);
    on_both("drafts", [&](Side& side) { into_plan ? side.core->set_drafts_in_plan({&draft, 1}) : side.core->set_drafts({&draft, 1}); });
  }

  void operate() {
    switch (in_.below(6)) {
      case 0:
        return reset();
      case 1: {
        const SwapCosts costs{1e6, 1e6, 1e5, 1e5, 10.0};
        return on_both("costs", [&](Side& side) { side.core->set_swap_costs(costs); });
      }
      case 2: {
        const RequestId id = some_id();
        return on_both("forget", [&](Side& side) { side.core->forget_blocks(id); });
      }
      case 3:
        return on_both("pins", [](Side& side) { side.core->end_pins(); });
      case 4:
        return on_both("stats", [](Side& side) {
          const SchedulerStats* stats = side.core->make_stats();
          if (stats != nullptr) side.told(*stats);
        });
      default: {
        const auto state = chance(in_, 4) ? chance(in_, 2) ? PauseState::paused_new : PauseState::paused_all : PauseState::unpaused;
        return on_both("pause", [&](Side& side) { side.core->set_pause_state(state); });
      }
    }
  }

  void reset() {
    const bool preempts = chance(in_, 2);
    on_both("reset", [&](Side& side) {
      const auto done = side.core->reset_prefix_cache(preempts, has_connector_, {.now = now_});
      side.told(done.has_value(), done.value_or(false), side.core->reset_connector_cache());
      side.core->reset_encoder_cache();
    });
  }

  SeedSource in_;
  bool has_connector_ = false, has_grammar_ = false, takes_results_ = true;
  Side first_, spare_;
  std::unique_ptr<Side> second_;
  std::deque<Outstanding> outstanding_;
  std::vector<Open> open_;
  std::set<std::uint64_t> received_;  // told once
  std::string last_call_;
  std::uint64_t next_id_ = 1;
  double now_ = 100.0;
};

}  // namespace quire::test
