#pragma once
// A run of the core in which a seed decides each call, each result and each answer of a seam, written down as it is made.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/journal/told.h"
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

// What came later has runs of its own, so that what was recorded before stays as it is.
enum class RunOf : std::uint8_t {
  first_rules,
  early_loads,  // the first rules, with CureOptions::early_loads
  cures,        // quire's own options: all cures, pressure
  newer_rules   // vLLM 0.32.0
};

// Calls at random, written down as they are made.
class RecordedRun {
 public:
  explicit RecordedRun(std::uint64_t seed, RunOf kind = RunOf::first_rules)
      : in_(seed, 1000),
        answers_(seed ^ 0xABCDU, 0),
        connector_(answers_),
        grammar_(answers_),
        is_wide_(kind == RunOf::cures || kind == RunOf::newer_rules),
        told_(is_wide_) {
    do {
      config = random_config(in_);
      draw_more_options();
      draw_more_groups();
      if (is_wide_) widen();
      if (kind == RunOf::cures) draw_cures();
      if (kind == RunOf::newer_rules) draw_newer_rules(in_, config);
    } while (!config.validate());
    if (kind == RunOf::early_loads) config.cures.early_loads = true;
    CoreSeams seams;
    if (!config.mamba_align && chance(in_, 2)) seams.connector = &connector_;
    if (chance(in_, 2)) seams.grammar = &grammar_;
    if (chance(in_, 2) && kind != RunOf::newer_rules) seams.encoder_connector = &encoders_;
    if (chance(in_, 2)) seams.tools = &tools_;
    if (chance(in_, 2)) seams.hash = &names_;
    has_connector_ = seams.connector != nullptr;
    recorder_ = std::make_unique<SeamRecorder>(seams);
    CoreSeams recorded = recorder_->seams();
    recorded.events = &told_;
    recorded.calls = &calls_.sink();
    core_ = Core::create(config, recorded).value();
    for (std::uint32_t i = 1; !in_.empty(); in_.count(), ++i) {
      one_call();
      if (i % 8 == 0) tell_state();
      if (i % 100 == 0) digests.push_back(static_cast<std::uint32_t>(told_.digest() ^ (told_.digest() >> 32U)));
    }
  }

  CoreConfig config;
  std::string plans;
  std::vector<std::uint32_t> digests;  // of all that was told, events too, after each 100 calls
  std::uint32_t num_steps = 0;
  [[nodiscard]] CoreCounters counters() const { return core_->counters(); }
  std::vector<std::uint8_t> calls() { return calls_.take(); }
  SeamRecord answers() { return recorder_->take(); }

 private:
  struct Scheduled {
    RequestId id;
    bool samples;
    std::uint32_t num_drafts;
  };
  struct Outstanding {
    StepId step;
    std::vector<Scheduled> scheduled;
  };

  void draw_more_options() {
    if (chance(in_, 3)) config.scheduler.policy = SchedulingPolicy::continuum;
    config.continuum.pin_s = 0.5 * in_.below(12);
    config.continuum.longest_tool_s = 1.0 + in_.below(6);
    config.continuum.max_jobs = 1 + in_.below(5);
    config.continuum.max_tools = 1 + in_.below(3);
    config.continuum.pins_give_way = chance(in_, 2);
    config.continuum.pins_end_with_job = chance(in_, 2);
    config.continuum.jobless_in_order = chance(in_, 2);
    config.cures.loaded_give_way = chance(in_, 2);
    config.prefix_cache.hash = static_cast<HashAlgorithm>(in_.below(5));
    config.report.kv_metrics_sample = chance(in_, 3) ? 1.0 : 0.0;
  }

  // Kinds of layers that random_config leaves out.
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

  // More of what the first runs meet seldom: windows, inputs of encoders and room for them.
  void widen() {
    if (chance(in_, 3) && config.kv.groups.size() == 1) {
      SlidingWindowSpec window;
      window.sliding_window = 1 + in_.below(3 * config.block_size);
      config.kv.groups.push_back(group_of(window, config.block_size));
    }
    config.kv.num_blocks += in_.below(30);
    config.encoder.max_encoder_tokens = 2 + in_.below(8);
    config.encoder.encoder_cache_size = 2 + in_.below(10);
  }

  void draw_cures() {
    CureOptions& cures = config.cures;
    for (bool* cure : {&cures.hits_before_loads, &cures.early_loads, &cures.unsure_drafts, &cures.cut_sessions, &cures.unloaded_begin_anew})
      *cure = chance(in_, 2);
    PressureOptions& pressure = config.pressure;
    if (chance(in_, 4)) pressure.admission_watermark = 0.1 * in_.below(4);
    if (!chance(in_, 4)) return;
    pressure.pressure_low = 0.1 * (2 + in_.below(4));
    pressure.pressure_high = pressure.pressure_low + 0.1 * in_.below(5);
    pressure.pressure_preempts = chance(in_, 2);
  }

  // Some share a name, most of these a size.
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

  void tell_state() {
    core_->snapshot(snapshot_);
    told_(snapshot_, core_->counters(), core_->next_deadline(), core_->has_work(), core_->has_finished_requests(),
          core_->all_blocks_free());
    core_->visit([this](QueueKind kind, const RequestView& view) { told_(kind, view); });
    if (!is_wide_) return;
    for (const CoreSnapshot::Request& r : snapshot_.requests) told_(r.num_tokens_in_flight, r.num_stale_tokens, r.drops_stale, r.deferred);
  }

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
    const bool is_plain = is_wide_ && !chance(in_, 3);  // as many others begin
    for (TokenId& token : prompt) token = is_plain ? 0 : static_cast<TokenId>(in_.below(2));
    const TokenId stops[] = {1};
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
                           .hints = {{"size", "small"}}};
    NewRequest request{.id = RequestId{next_id_++}, .name = "name", .prompt = prompt, .arrival_time = now_};
    request.max_tokens = 1 + in_.below(6);
    request.stop_token_ids = std::span(stops).first(in_.below(2));
    request.cache_salt = chance(in_, 6) ? "salt" : "";
    request.priority = static_cast<std::int64_t>(in_.below(3)) - 1;
    request.multimodal = items;
    request.structured_output = chance(in_, 5);
    request.resumable = chance(in_, 8);
    request.pooling = !request.resumable && chance(in_, 10);
    if (request.pooling) {
      request.max_tokens = 1;
      pooling_.insert(request.id.value);
    }
    request.skip_reading_prefix_cache = chance(in_, 8);
    request.client_index = in_.below(2);
    request.min_tokens = in_.below(3);
    request.repetition = chance(in_, 4) ? RepetitionDetection{1, 2, 2} : RepetitionDetection{};
    request.lora_id = adapter.back() - '0';
    if (request.lora_id != 0) request.lora_name = adapter;
    request.tags = chance(in_, 2) ? &tags : nullptr;
    if (is_wide_) request.loads_nothing = chance(in_, 10);
    told_(core_->add(request, {.now = now_}).has_value());
  }

  void schedule() {
    if (core_->num_outstanding_plans() == config.limits.max_outstanding_plans) return;
    const StepPlan& plan = core_->schedule({.now = now_, .random = next_id_});
    plans += text_of(plan);
    told_(plan);
    ++num_steps;
    outstanding_.push_back({plan.step, {}});
    for (const ScheduledRequest& s : plan.scheduled)
      outstanding_.back().scheduled.push_back({s.id, s.samples, static_cast<std::uint32_t>(s.drafts.size())});
  }

  void apply() {
    if (outstanding_.empty()) return;
    std::vector<SampledToken> sampled;
    std::vector<RequestId> sent, received, failed, pooled;
    for (const Scheduled& s : outstanding_.front().scheduled) {
      if (!s.samples) continue;
      if (pooling_.contains(s.id.value))
        pooled.push_back(s.id);
      else
        for (std::uint32_t n = 1 + in_.below(s.num_drafts + 1); n > 0; --n) sampled.push_back({s.id, static_cast<TokenId>(in_.below(3))});
    }
    for (std::uint64_t id = 0; has_connector_ && id < next_id_; ++id) {
      const auto view = core_->view(RequestId{id});
      if (!view || !chance(in_, 2)) continue;
      if (is_finished(view->status)) sent.push_back(view->id);
      if (view->status == RequestStatus::waiting_for_remote_kv && !received_.contains(id)) {
        received.push_back(view->id);
        received_.insert(id);
        if (is_wide_ && chance(in_, 6)) failed.push_back(view->id);
      }
    }
    std::vector<BlockId> invalid;
    if (has_connector_ && config.kv.groups.size() == 1 && chance(in_, 6)) invalid.push_back(BlockId{in_.below(config.kv.num_blocks)});
    const StepResult result{.step = outstanding_.front().step,
                            .sampled = sampled,
                            .pooled = pooled,
                            .has_connector_output = has_connector_,
                            .finished_sending = sent,
                            .finished_receiving = received,
                            .invalid_blocks = invalid,
                            .failed_receiving = failed};
    // Refused where a pin, not a transfer, keeps the blocks of one that was told of: then nothing has happened.
    const auto applied = core_->apply(result, {.now = now_});
    told_(applied.has_value());
    if (!applied) return;
    told_(**applied);
    outstanding_.pop_front();
    std::erase_if(received_, [this](std::uint64_t id) {
      const auto view = core_->view(RequestId{id});
      return !view || view->status != RequestStatus::waiting_for_remote_kv;
    });
  }

  // Rather one that is still open.
  RequestId some_id() {
    const auto newest = static_cast<std::uint32_t>(next_id_);
    const std::uint32_t back = in_.below(chance(in_, 4) ? newest + 1 : std::min(newest, 8U) + 1);
    return RequestId{newest - back};
  }

  void finish() {
    const RequestId id = some_id();
    const RequestStatus status = chance(in_, 4) ? RequestStatus::finished_error : RequestStatus::finished_aborted;
    told_(core_->finish(id, status, {.now = now_}));
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
    told_(core_->continue_session(id, given, {.now = now_}).has_value());
  }

  void fork() {
    const RequestId parent = some_id();
    ForkRequest child{.id = RequestId{next_id_++}, .arrival_time = now_, .resumable = chance(in_, 8)};
    if (chance(in_, 2)) child.max_tokens = 1 + in_.below(8);
    if (chance(in_, 2)) child.next_token = 0;
    if (is_wide_ && chance(in_, 3)) {
      const auto view = core_->view(parent);
      child.num_tokens = view ? view->num_prompt_tokens + in_.below(4) : 0;
      child.waits_for_input = child.resumable;
    }
    told_(core_->fork(parent, child, {.now = now_}).has_value());
  }

  void drafts() {
    if (config.speculation.num_spec_tokens == 0) return;
    const std::vector<TokenId> tokens(in_.below(config.speculation.num_spec_tokens + 1), 1);
    const Draft draft{some_id(), tokens};
    if (!outstanding_.empty() && chance(in_, 3)) return core_->set_drafts_in_plan({&draft, 1});
    core_->set_drafts({&draft, 1});
  }

  void reset() {
    const auto reset = core_->reset_prefix_cache(true, has_connector_, {.now = now_});
    told_(reset.has_value(), reset.value_or(false));
    told_(core_->reset_connector_cache());
    core_->reset_encoder_cache();
    core_->end_pins();
  }

  void pause() {
    const auto state = chance(in_, 4) ? chance(in_, 2) ? PauseState::paused_new : PauseState::paused_all : PauseState::unpaused;
    core_->set_pause_state(state);
    const SchedulerStats* stats = core_->make_stats();
    told_(stats != nullptr);
    if (stats != nullptr) told_(*stats);
  }

  SeedSource in_, answers_;
  RandomConnector<SeedSource> connector_;
  RandomGrammar<SeedSource> grammar_;
  OddEncoderCache encoders_;
  OddTools tools_;
  SumNames names_;
  bool has_connector_ = false;
  bool is_wide_;
  std::unique_ptr<SeamRecorder> recorder_;
  std::unique_ptr<Core> core_;
  CoreCallWriter calls_;
  std::deque<Outstanding> outstanding_;
  std::set<std::uint64_t> received_;  // told once
  std::set<std::uint64_t> pooling_;
  Told told_;
  CoreSnapshot snapshot_;
  std::uint64_t next_id_ = 1;
  double now_ = 100.0;
};

}  // namespace quire::test
