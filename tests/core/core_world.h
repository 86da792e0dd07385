#pragma once
// Random calls to one core or to several alike: a seed decides each configuration, call and result. Each side makes every call and
// adds the result to its digest; plans, transfers and requests are read from the first side. RecordedRun records the calls; TwinRun
// compares a core with a restored core. The order of the draws is part of the records in tests/golden/decisions*.txt: a later addition
// draws only for new kinds of runs.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/journal/told.h"
#include "fuzz/random_core.h"

namespace quire::test {

enum class RunOf : std::uint8_t {
  first_rules,
  early_loads,  // the first rules, with FixOptions::early_loads
  fixes,        // quire's own options: all fixes, pressure
  newer_rules,  // vLLM 0.32.0
  twins,        // everything that a core can have, transfers and swaps among it
  newer_twins,  // the same by the rules of vLLM 0.32.0
  latest_twins  // twins with options that are newer than the recorded runs
};

class CoreWorld {
 public:
  CoreConfig config;

 protected:
  struct Side {
    explicit Side(bool everything) : told(everything) {}
    Told told;
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

  CoreWorld(std::uint64_t seed, std::uint64_t num_calls, RunOf kind)
      : in_(seed, num_calls),
        is_twin_(kind == RunOf::twins || kind == RunOf::newer_twins || kind == RunOf::latest_twins),
        is_latest_(kind == RunOf::latest_twins),
        is_newer_(kind == RunOf::newer_rules || kind == RunOf::newer_twins),
        is_wide_(kind != RunOf::first_rules && kind != RunOf::early_loads) {
    do {
      config = random_config(in_);
      if (!is_latest_) config.prefix_cache.slru_share = config.prefix_cache.retained_share = 0.0;
      draw_more_options();
      draw_more_groups();
      if (is_wide_) widen();
      if (kind == RunOf::fixes || is_twin_) draw_fixes();
      if (is_twin_) draw_moves();
      if (is_newer_) draw_newer_rules(in_, config);
      if (is_latest_) config.scheduler.tenant_turns = chance(in_, 2);
    } while (!config.validate());
    if (kind == RunOf::early_loads) config.fixes.early_loads = true;
  }
  ~CoreWorld() = default;

  // Called with the plan of each schedule(), before any other call.
  virtual void on_plan(const StepPlan& /*plan*/) {}

  // Makes a call on each side. The call adds its result to the side's digest.
  template <class Call>
  void on_each(const char* name, Call call) {
    last_call_ = name;
    for (Side* side : sides_) call(*side);
  }
  [[nodiscard]] const Core& first() const { return *sides_.front()->core; }

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
        return is_twin_ ? operate() : chance(in_, 4) ? reset() : pause();
      case 5:
      case 6:
      case 7:
        return add();
      default:
        return chance(in_, 2) ? schedule() : apply();
    }
  }

  void tell_state(Side& side) const {
    CoreSnapshot snapshot;
    side.core->snapshot(snapshot);
    side.told(snapshot, side.core->counters(), side.core->next_deadline(), side.core->has_work(), side.core->has_finished_requests(),
              side.core->all_blocks_free());
    side.core->visit([&side](QueueKind kind, const RequestView& view) { side.told(kind, view); });
    if (!is_wide_) return;
    for (const CoreSnapshot::Request& r : snapshot.requests)
      side.told(r.num_tokens_in_flight, r.num_stale_tokens, r.drops_stale, r.deferred);
    if (is_twin_) side.told(snapshot.swapped);
  }

  void await(const StepPlan& plan) {
    outstanding_.push_back({plan.step, {}});
    for (const ScheduledRequest& s : plan.scheduled)
      outstanding_.back().scheduled.push_back({s.id, s.samples, s.pools, static_cast<std::uint32_t>(s.drafts.size())});
    for (const Transfer& transfer : plan.transfers)
      open_.push_back(
          {transfer.id, plan.step, transfer.direction == TransferDirection::load, {transfer.blocks.begin(), transfer.blocks.end()}});
  }

  SeedSource in_;
  const bool is_twin_, is_latest_, is_newer_, is_wide_;
  bool has_connector_ = false;
  bool moves_ = false;         // the connector moves blocks by transfers; otherwise results list the requests whose blocks have arrived
  bool takes_results_ = true;  // false: the core has refused a result without lists and transfers
  std::vector<Side*> sides_;
  std::deque<Outstanding> outstanding_;
  std::vector<Open> open_;
  std::uint64_t next_id_ = 1;
  double now_ = 100.0;
  std::string last_call_;

 private:
  void draw_more_options() {
    if (chance(in_, 3)) config.scheduler.policy = SchedulingPolicy::continuum;
    config.continuum.pin_s = 0.5 * in_.below(12);
    config.continuum.longest_tool_s = 1.0 + in_.below(6);
    config.continuum.max_jobs = 1 + in_.below(5);
    config.continuum.max_tools = 1 + in_.below(3);
    config.continuum.pins_give_way = chance(in_, 2);
    config.continuum.pins_end_with_job = chance(in_, 2);
    config.continuum.jobless_in_order = chance(in_, 2);
    config.fixes.loaded_give_way = chance(in_, 2);
    config.prefix_cache.hash = static_cast<HashAlgorithm>(in_.below(5));
    config.report.kv_metrics_sample = chance(in_, 3) ? 1.0 : 0.0;
  }

  // Draws kinds of layers that random_config() does not draw.
  void draw_more_groups() {
    switch (in_.below(16)) {
      case 0: {
        ChunkedLocalSpec chunked;
        chunked.attention_chunk_size = 1 + in_.below(12);
        config.kv.groups.push_back(group_of(chunked, config.block_size));
        break;
      }
      case 1: {
        SinkFullAttentionSpec sink;
        sink.sink_len = config.block_size * (1 + in_.below(2));
        config.kv.groups = {group_of(sink, config.block_size)};
        break;
      }
      case 2: {
        MambaSpec mamba;
        mamba.mode = chance(in_, 2) ? MambaCacheMode::all : MambaCacheMode::align;
        config.mamba_align = mamba.mode == MambaCacheMode::align;
        mamba.num_speculative_blocks = config.speculation.num_spec_tokens;
        config.kv.groups = {group_of(FullAttentionSpec{}, config.block_size), group_of(mamba, config.block_size)};
        break;
      }
      case 3:
        config.kv.groups = {group_of(FullAttentionSpec{}, config.block_size), group_of(CrossAttentionSpec{}, config.block_size)};
        config.encoder.is_encoder_decoder = true;
        config.encoder.encoder_cache_size += 4;
        config.encoder.max_encoder_tokens += 4;
        config.prefix_cache.enable_prefix_caching = false;
        break;
      default:
        break;
    }
  }

  // Draws cases that are rare in the first runs: windows, encoder inputs and space for their outputs.
  void widen() {
    if (chance(in_, 3) && config.kv.groups.size() == 1) {
      SlidingWindowSpec window;
      window.sliding_window = 1 + in_.below(3 * config.block_size);
      config.kv.groups.push_back(group_of(window, config.block_size));
    }
    if (!is_twin_) config.kv.num_blocks += in_.below(30);
    config.encoder.max_encoder_tokens = 2 + in_.below(8);
    config.encoder.encoder_cache_size = 2 + in_.below(10);
  }

  void draw_fixes() {
    FixOptions& fixes = config.fixes;
    for (bool* fix : {&fixes.hits_before_loads, &fixes.early_loads, &fixes.unsure_drafts, &fixes.cut_sessions, &fixes.unloaded_begin_anew})
      *fix = chance(in_, 2);
    PressureOptions& pressure = config.pressure;
    if (chance(in_, 4)) pressure.admission_watermark = 0.1 * in_.below(4);
    if (!chance(in_, is_twin_ ? 3 : 4)) return;
    pressure.pressure_low = 0.1 * (2 + in_.below(4));
    pressure.pressure_high = pressure.pressure_low + 0.1 * in_.below(5);
    pressure.pressure_preempts = chance(in_, 2);
  }

  void draw_moves() {
    if (chance(in_, 2)) config.swap = {.num_swap_slots = 1 + in_.below(40), .num_slow_slots = 0, .swap_choice = SwapChoice::always};
    if (chance(in_, 4)) config.swap.swap_choice = SwapChoice::measured;
    config.swap.num_slow_slots = config.swap.num_swap_slots / 2;
    if (chance(in_, 4)) config.limits.max_open_transfers = 1 + in_.below(4);
  }

  // Some items share an identifier; most items with the same identifier have the same size.
  void draw_items(std::vector<MultimodalFeature>& items, std::uint32_t num_tokens) {
    std::uint32_t at = in_.below(3);
    for (std::uint32_t left = in_.below(4); left > 0; --left) {
      const std::uint32_t kind = in_.below(4);
      std::vector<std::uint8_t> mask(1 + kind + (chance(in_, 10) ? 1 : 0), 1);
      if (chance(in_, 3)) mask.insert(mask.begin(), in_.below(3), 0);
      const auto length = static_cast<std::uint32_t>(mask.size());
      if (at + length > num_tokens) return;
      const std::string name(1, static_cast<char>('a' + kind));
      items.push_back({name, mask.front() == 1 ? PlaceholderRange(at, length) : PlaceholderRange(at, mask)});
      at += length + in_.below(3);
    }
  }

  void add() {
    std::vector<TokenId> prompt(1 + in_.below(config.scheduler.max_model_len));
    const bool is_plain = is_wide_ && !chance(in_, 3);  // the prompts of many requests begin alike
    for (TokenId& token : prompt) token = is_plain ? 0 : static_cast<TokenId>(in_.below(2));
    const std::vector<std::byte> embeds(is_twin_ && chance(in_, 8) ? prompt.size() * 4 : 0, std::byte{9});
    const TokenId stops[] = {1}, ends[] = {2};
    std::vector<MultimodalFeature> items;
    if (prompt.size() > 4 && (config.encoder.is_encoder_decoder || chance(in_, 5))) {
      const std::uint8_t mask[] = {1, 0, 1};
      items.push_back({"a", chance(in_, 2) ? PlaceholderRange(1, 3) : PlaceholderRange(1, mask)});
    }
    if (is_wide_ && items.empty() && chance(in_, 2)) draw_items(items, static_cast<std::uint32_t>(prompt.size()));
    const std::string adapter = fmt::format("adapter{}", in_.below(3));
    const RequestTags tags{.job = fmt::format("job{}", in_.below(4)),
                           .is_last_step = chance(in_, 4),
                           .tool = chance(in_, 2) ? "ls" : "",
                           .tenant = is_twin_ && chance(in_, 4) ? "tenant" : "",
                           .is_background = is_latest_ && chance(in_, 4),
                           .retention_s = is_latest_ && chance(in_, 4) ? in_.below(60) : 0,
                           .hints = {{"size", "small"}}};
    NewRequest request{.id = RequestId{next_id_++}, .name = "name", .prompt = prompt, .arrival_time = now_};
    request.max_tokens = 1 + in_.below(is_twin_ ? 12 : 6);
    request.stop_token_ids = std::span(stops).first(is_twin_ ? in_.below(8) / 7 : in_.below(2));
    if (is_twin_) request.eos_ids = std::span(ends).first(in_.below(8) / 7);
    request.cache_salt = chance(in_, 6) ? "salt" : "";
    request.priority = static_cast<std::int64_t>(in_.below(3)) - 1;
    request.multimodal = items;
    request.prompt_embeds = embeds;
    request.structured_output = chance(in_, 5);
    request.resumable = chance(in_, is_twin_ ? 6 : 8);
    request.pooling = !request.resumable && chance(in_, 10);
    if (request.pooling) request.max_tokens = 1;
    request.skip_reading_prefix_cache = chance(in_, 8);
    request.client_index = in_.below(2);
    request.min_tokens = in_.below(3);
    request.repetition = chance(in_, 4) ? RepetitionDetection{1, 2, 2} : RepetitionDetection{};
    request.lora_id = adapter.back() - '0';
    if (request.lora_id != 0) request.lora_name = adapter;
    request.tags = chance(in_, 2) ? &tags : nullptr;
    if (is_wide_) request.loads_nothing = chance(in_, 10);
    on_each("add", [&](Side& side) { side.told(side.core->add(request, {.now = now_}).has_value()); });
  }

  void schedule() {
    if (first().num_outstanding_plans() == config.limits.max_outstanding_plans) return;
    on_each("schedule", [&](Side& side) {
      const StepPlan& plan = side.core->schedule({.now = now_, .random = next_id_});
      if (&side == sides_.front()) on_plan(plan);
      side.told(plan);
    });
    await(first().outstanding_plan(first().num_outstanding_plans() - 1));
  }

  void apply() {
    if (outstanding_.empty()) return;
    const Outstanding& oldest = outstanding_.front();
    std::vector<SampledToken> sampled;
    std::vector<RequestId> sent, received, failed, pooled;
    for (const Scheduled& s : oldest.scheduled) {
      if (s.pools && is_twin_) pooled.push_back(s.id);
      for (std::uint32_t n = s.samples ? 1 + in_.below(s.num_drafts + 1) : 0; n > 0; --n)
        sampled.push_back({s.id, static_cast<TokenId>(in_.below(3))});
    }
    const bool tells_lists = has_connector_ && !moves_;
    if (tells_lists) draw_lists(sent, received, failed);
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
                      .failed_receiving = failed,
                      .completions = over};
    // The core refuses a result that contains a load for which no request waits, or a request whose blocks a pin keeps.
    if (!take(result)) {
      if (!is_twin_) return;
      result.completions = {};
      result.finished_sending = result.finished_receiving = result.failed_receiving = {};
      takes_results_ = take(result);
      if (!takes_results_) return;
    }
    for (const TransferCompletion& completion : result.completions)
      std::erase_if(open_, [&](const Open& open) { return open.id == completion.transfer; });
    outstanding_.pop_front();
    std::erase_if(received_, [this](std::uint64_t id) {
      const auto view = first().view(RequestId{id});
      return !view || view->status != RequestStatus::waiting_for_remote_kv;
    });
  }

  bool take(const StepResult& result) {
    bool is_taken = false;
    on_each("apply", [&](Side& side) {
      if (is_twin_) side.told(side.core->requests_invalidated_by(result));
      const auto applied = side.core->apply(result, {.now = now_});
      is_taken = applied.has_value();
      side.told(is_taken);
      if (applied) side.told(**applied);
    });
    return is_taken;
  }

  void draw_lists(std::vector<RequestId>& sent, std::vector<RequestId>& received, std::vector<RequestId>& failed) {
    CoreSnapshot now;
    if (config.swap.num_swap_slots > 0) first().snapshot(now);
    for (std::uint64_t id = 0; id < next_id_; ++id) {
      const auto view = first().view(RequestId{id});
      if (!view || !chance(in_, 2)) continue;
      if (is_finished(view->status)) sent.push_back(view->id);
      const bool is_swapped = std::ranges::any_of(now.swapped, [&](const auto& swapped) { return swapped.first == view->id; });
      if (view->status != RequestStatus::waiting_for_remote_kv || is_swapped || !received_.insert(id).second) continue;
      received.push_back(view->id);
      if (is_wide_ && chance(in_, 6)) failed.push_back(view->id);
    }
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

  // Returns the id of a recent request more often than of an old one.
  RequestId some_id() {
    const auto newest = static_cast<std::uint32_t>(next_id_);
    const std::uint32_t back = in_.below(chance(in_, 4) ? newest + 1 : std::min(newest, 8U) + 1);
    return RequestId{newest - back};
  }

  void finish() {
    const RequestId id = some_id();
    const RequestStatus status = chance(in_, 4) ? RequestStatus::finished_error : RequestStatus::finished_aborted;
    if (!is_twin_ || !chance(in_, 3))
      return on_each("finish", [&](Side& side) { side.told(side.core->finish(id, status, {.now = now_})); });
    const RequestId ids[] = {id, some_id(), some_id()};
    on_each("finish all", [&](Side& side) {
      std::vector<RequestId> finished;
      side.core->finish(ids, status, finished, {.now = now_});
      side.told(finished);
    });
  }

  void continue_session() {
    const RequestId id = some_id();
    const std::vector<TokenId> tokens(1 + in_.below(4), 1);
    SessionInput input{.tokens = tokens, .arrival_time = now_, .min_tokens = in_.below(2)};
    std::vector<MultimodalFeature> items;
    if (is_wide_) {
      draw_items(items, static_cast<std::uint32_t>(tokens.size()));
      input.max_tokens = 1 + in_.below(6);
      input.multimodal = items;
    }
    const SessionInput* given = chance(in_, 4) ? nullptr : &input;
    on_each("continue_session", [&](Side& side) { side.told(side.core->continue_session(id, given, {.now = now_}).has_value()); });
  }

  void fork() {
    const RequestId parent = some_id();
    ForkRequest child{.id = RequestId{next_id_++}, .arrival_time = now_, .resumable = chance(in_, is_twin_ ? 4 : 8)};
    if (chance(in_, 2)) child.max_tokens = 1 + in_.below(8);
    if (chance(in_, 2)) child.next_token = 0;
    if (is_wide_ && chance(in_, 3)) {
      const auto view = first().view(parent);
      child.num_tokens = view ? view->num_prompt_tokens + in_.below(4) : 0;
      child.waits_for_input = child.resumable;
    }
    on_each("fork", [&](Side& side) { side.told(side.core->fork(parent, child, {.now = now_}).has_value()); });
  }

  void drafts() {
    if (config.speculation.num_spec_tokens == 0) return;
    // The first stage of a pipeline proposes nothing after tokens that it does not know yet.
    if (is_twin_ && config.parallel.pipeline_parallel && !config.scheduler.async_scheduling && !outstanding_.empty()) return;
    const std::vector<TokenId> tokens(in_.below(config.speculation.num_spec_tokens + 1), 1);
    const Draft draft{some_id(), tokens};
    const bool into_plan = !outstanding_.empty() && chance(in_, 3);
    on_each("drafts", [&](Side& side) { into_plan ? side.core->set_drafts_in_plan({&draft, 1}) : side.core->set_drafts({&draft, 1}); });
  }

  void operate() {
    switch (in_.below(6)) {
      case 0:
        return reset();
      case 1:
        return on_each("costs", [](Side& side) { side.core->set_swap_costs({1e6, 1e6, 1e5, 1e5, 10.0}); });
      case 2: {
        const RequestId id = some_id();
        return on_each("forget", [&](Side& side) { side.core->forget_blocks(id); });
      }
      case 3:
        return on_each("pins", [](Side& side) { side.core->end_pins(); });
      default:
        return pause();
    }
  }

  void reset() {
    const bool preempts = !is_twin_ || chance(in_, 2);
    on_each("reset", [&](Side& side) {
      const auto done = side.core->reset_prefix_cache(preempts, has_connector_, {.now = now_});
      side.told(done.has_value(), done.value_or(false));
      side.told(side.core->reset_connector_cache());
      side.core->reset_encoder_cache();
      if (!is_twin_) side.core->end_pins();
    });
  }

  void pause() {
    const auto state = chance(in_, 4) ? chance(in_, 2) ? PauseState::paused_new : PauseState::paused_all : PauseState::unpaused;
    on_each("pause", [&](Side& side) {
      side.core->set_pause_state(state);
      const SchedulerStats* stats = side.core->make_stats();
      side.told(stats != nullptr);
      if (stats != nullptr) side.told(*stats);
    });
  }

  std::set<std::uint64_t> received_;  // each is reported once
};

}  // namespace quire::test
