#pragma once
// Random streams of events for the core, from any source of numbers: requests of every kind, steps, results, drafts, transfers, sessions,
// pauses, resets, ends from outside, and calls that must be refused. After each event all invariants are checked. At the end of a stream
// every request ends and every block is free.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "fuzz/random_core.h"
#include "quire/core.h"

namespace quire::test {

template <class Source>
class CoreEvents {
 public:
  // `core` is null if the configuration is refused.
  explicit CoreEvents(Source& in)
      : in_(in),
        config_(random_config(in)),
        connector_(in),
        grammar_(in),
        has_connector_(chance(in, 3)),
        has_grammar_(chance(in, 3)),
        has_items_(chance(in, 2)) {
    if (config_.limits.max_fork_family % 4 == 1) draw_newer_rules(in, config_);
    CoreSeams seams;
    seams.connector = has_connector_ ? &connector_ : nullptr;
    seams.grammar = has_grammar_ ? &grammar_ : nullptr;
    if (auto created = Core::create(config_, seams)) core_ = std::move(*created);
  }

  [[nodiscard]] bool valid() const { return core_ != nullptr; }
  [[nodiscard]] CoreCounters counters() const { return core_->counters(); }

  void one_event() {
    switch (in_.below(32)) {
      case 0:
        reset();
        break;
      case 1:
        core_->set_pause_state(static_cast<PauseState>(in_.below(3)));
        break;
      case 2:
        continue_session();
        break;
      case 3:
        misuse();
        break;
      case 4:
      case 5:
        finish();
        break;
      case 6:
      case 7:
        set_drafts();
        break;
      case 8:
        fork();
        break;
      default:
        in_.below(3) == 0 ? add() : in_.below(2) == 0 ? schedule() : apply();
    }
    core_->check_invariants();
  }

  // Ends all requests. Requests that wait for external events are completed or aborted.
  void drain() {
    connector_.draining = grammar_.draining = true;
    core_->set_pause_state(PauseState::unpaused);
    for (RequestId id : std::vector(alive_)) {
      const auto view = core_->view(id);
      if (view && (sessions_.contains(id) || !can_progress())) core_->finish(id, RequestStatus::finished_aborted);
    }
    for (int step = 0; core_->has_work() || !plans_.empty() || !in_transfer().empty(); ++step) {
      if (step == 20000) dump();
      QUIRE_CHECK(step < 20000, "the stream makes progress");
      if (core_->has_work() || plans_.empty()) schedule();
      apply();
    }
    core_->check_invariants();
    QUIRE_CHECK(core_->all_blocks_free(), "all blocks are free");
  }

 private:
  struct Planned {
    StepId step;
    std::vector<ScheduledRequest> scheduled;
    std::vector<std::uint32_t> num_drafts;
  };
  struct Ids {
    std::vector<std::uint64_t> ids;
    [[nodiscard]] bool contains(RequestId id) const { return std::ranges::find(ids, id.value) != ids.end(); }
  };

  // Returns whether every request must end without help from outside. vLLM never ends a request whose tokens are dropped without need, nor
  // one that waits for a step with room for all its draft placeholders if no step has as much (DecisionRules::padded_decodes).
  [[nodiscard]] bool can_progress() const {
    const bool padding_fits = !DecisionRules(config_.decisions, config_.fixes).padded_decodes ||
                              config_.speculation.num_spec_tokens < config_.scheduler.max_num_batched_tokens;
    return padding_fits && config_.kv.groups.size() == 1 && is_full_attention(config_.kv.groups[0].spec) && !has_connector_ &&
           !has_items_ && (!config_.scheduler.async_scheduling || config_.fixes.discard_only_in_flight);
  }

  // Prints the state for the analysis of a failure.
  void dump() const {
    CoreSnapshot snapshot;
    core_->snapshot(snapshot);
    for (const CoreSnapshot::Request& r : snapshot.requests) {
      fmt::print("request {}: status {}, {} of {} tokens computed, {} placeholders, {} preemptions, {} drafts, {} blocks\n", r.id.value,
                 static_cast<int>(r.status), r.num_computed_tokens, r.num_tokens, r.num_output_placeholders, r.num_preemptions,
                 r.draft_tokens.size(), r.blocks.empty() ? 0 : r.blocks[0].size());
    }
    fmt::print("{} running, {} waiting, {} skipped, {} of {} blocks of {} free, {} groups, policy {}, async {}, {} plans\n",
               snapshot.running.size(), snapshot.waiting.size(), snapshot.skipped_waiting.size(), snapshot.free_blocks.size(),
               config_.kv.num_blocks, config_.block_size, config_.kv.groups.size(), static_cast<int>(config_.scheduler.policy),
               config_.scheduler.async_scheduling, plans_.size());
    fmt::print("max_num_batched_tokens {}, max_model_len {}, chunked {}, threshold {}, connector {}, discard_only_in_flight {}\n",
               config_.scheduler.max_num_batched_tokens, config_.scheduler.max_model_len, config_.scheduler.enable_chunked_prefill,
               config_.scheduler.long_prefill_token_threshold, has_connector_, config_.fixes.discard_only_in_flight);
    std::fflush(stdout);
  }

  void add() {
    std::vector<TokenId> prompt(in_.below(chance(in_, 16) ? 45 : config_.scheduler.max_model_len));
    const std::uint32_t start = in_.below(256);
    for (std::size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<TokenId>((start >> (i % 8)) & 1U);
    const TokenId stops[] = {1};
    std::vector<MultimodalFeature> items;
    if (has_items_ && chance(in_, 6) && prompt.size() > 2) {
      const auto offset = in_.below(static_cast<std::uint32_t>(prompt.size()));
      const auto length = 1 + in_.below(static_cast<std::uint32_t>(prompt.size()) - offset);
      items.push_back({std::string(1, static_cast<char>('a' + in_.below(3))), PlaceholderRange(offset, length)});
    }
    NewRequest request{.id = RequestId{next_id_++}, .prompt = prompt};
    request.max_tokens = chance(in_, 16) ? in_.below(44) : 1 + in_.below(8);
    request.min_tokens = in_.below(4) == 0 ? in_.below(4) : 0;
    request.stop_token_ids = std::span(stops).first(in_.below(2));
    request.cache_salt = chance(in_, 8) ? "salt" : "";
    request.priority = static_cast<std::int64_t>(in_.below(3));
    request.arrival_time = static_cast<double>(request.id.value);
    request.multimodal = items;
    request.lora_id = in_.below(4) == 0 ? 1 + in_.below(3) : 0;
    request.lora_name = request.lora_id == 0 ? "" : "adapter";
    request.structured_output = chance(in_, 6);
    request.resumable = chance(in_, 8);
    request.pooling = !request.resumable && chance(in_, 12);
    request.skip_reading_prefix_cache = chance(in_, 12);
    if (core_->add(request)) {
      alive_.push_back(request.id);
      if (request.resumable) sessions_.ids.push_back(request.id.value);
      if (request.pooling) poolings_.ids.push_back(request.id.value);
    }
  }

  // Forks any known request, also ended ones, with an id that may be in use.
  void fork() {
    if (alive_.empty()) return;
    const RequestId parent = alive_[in_.below(static_cast<std::uint32_t>(std::min<std::size_t>(alive_.size(), 200)))];
    ForkRequest child{.id = chance(in_, 12) ? parent : RequestId{next_id_++}};
    // The arrival time differs from all other requests (ForkRequest::arrival_time).
    child.arrival_time = static_cast<double>(child.id.value);
    child.num_tokens = chance(in_, 2) ? in_.below(60) : 0;
    if (chance(in_, 3)) child.max_tokens = in_.below(20);
    if (chance(in_, 3)) child.next_token = static_cast<TokenId>(in_.below(2));
    child.resumable = chance(in_, 6);
    const auto before = core_->view(parent);
    const bool is_open = before && !is_finished(before->status);
    if (core_->fork(parent, child)) {
      QUIRE_CHECK(is_open, "only an open request is forked");
      alive_.push_back(child.id);
      if (child.resumable) sessions_.ids.push_back(child.id.value);
    }
  }

  void schedule() {
    if (core_->num_outstanding_plans() == config_.limits.max_outstanding_plans) return;
    const StepPlan& plan = core_->schedule({.now = 1.0, .random = 7});
    QUIRE_CHECK(plan.num_scheduled_tokens <= config_.scheduler.max_num_batched_tokens, "the budget holds");
    QUIRE_CHECK(plan.scheduled.size() <= config_.scheduler.max_num_seqs, "the batch holds");
    Planned planned{plan.step, {plan.scheduled.begin(), plan.scheduled.end()}, {}};
    for (const ScheduledRequest& s : plan.scheduled) {
      QUIRE_CHECK(s.num_tokens > 0 && s.slot.value < config_.scheduler.max_num_seqs, "a row of the batch");
      planned.num_drafts.push_back(static_cast<std::uint32_t>(s.drafts.size()));
    }
    plans_.push_back(std::move(planned));
  }

  // Returns the requests whose blocks a transfer reads or writes.
  [[nodiscard]] std::vector<RequestId> in_transfer() const {
    std::vector<RequestId> ids;
    for (RequestId id : alive_)
      if (const auto view = core_->view(id); view && (is_finished(view->status) || view->status == RequestStatus::waiting_for_remote_kv))
        ids.push_back(id);
    return ids;
  }

  void apply() {
    if (plans_.empty()) return;
    const Planned& plan = plans_.front();
    StepResult result;
    result.step = plan.step;
    sampled_.clear();
    pooled_.clear();
    for (std::size_t i = 0; i < plan.scheduled.size(); ++i) {
      const ScheduledRequest& s = plan.scheduled[i];
      if (poolings_.contains(s.id))
        pooled_.push_back(s.id);
      else if (s.samples)
        for (std::uint32_t n = 1 + in_.below(plan.num_drafts[i] + 1); n > 0; --n)
          sampled_.push_back({s.id, static_cast<TokenId>(in_.below(3))});
    }
    result.sampled = sampled_;
    result.pooled = pooled_;
    std::vector<RequestId> sent, received;
    std::vector<BlockId> invalid;
    if (has_connector_) {
      take_transfers(sent, received);
      if (!connector_.draining && chance(in_, 8)) invalid.push_back(BlockId{in_.below(config_.kv.num_blocks)});
      result.has_connector_output = true;
      result.finished_sending = sent;
      result.finished_receiving = received;
      result.invalid_blocks = config_.kv.groups.size() == 1 ? std::span<const BlockId>(invalid) : std::span<const BlockId>();
    }
    const auto applied = core_->apply(result, {.now = 2.0});
    QUIRE_CHECK(applied.has_value(), "a result that fits is taken");
    plans_.pop_front();
    std::erase_if(alive_, [this](RequestId id) { return !core_->view(id); });
    std::erase_if(sessions_.ids, [this](std::uint64_t id) { return !core_->view(RequestId{id}); });
    std::erase_if(received_.ids, [this](std::uint64_t id) {
      const auto view = core_->view(RequestId{id});
      return !view || view->status != RequestStatus::waiting_for_remote_kv;
    });
  }

  void take_transfers(std::vector<RequestId>& sent, std::vector<RequestId>& received) {
    for (RequestId id : in_transfer()) {
      if (!connector_.draining && !chance(in_, 3)) continue;
      const bool loading = core_->view(id)->status == RequestStatus::waiting_for_remote_kv;
      if (!loading) {
        (chance(in_, 2) ? sent : received).push_back(id);
      } else if (!received_.contains(id)) {
        received.push_back(id);
        received_.ids.push_back(id.value);
      }
    }
  }

  void finish() {
    const RequestId id{in_.below(static_cast<std::uint32_t>(std::min<std::uint64_t>(next_id_, 200)) + 1) +
                       (next_id_ > 200 ? next_id_ - 200 : 0)};
    const auto status = static_cast<RequestStatus>(static_cast<std::uint32_t>(RequestStatus::finished_stopped) + in_.below(6));
    const bool known = core_->view(id) && !is_finished(core_->view(id)->status);
    const FinishEffect effect = core_->finish(id, status);
    QUIRE_CHECK(known == (effect != FinishEffect::unknown), "known requests end, and only they");
  }

  void reset() {
    (void)core_->reset_prefix_cache(chance(in_, 2), chance(in_, 2));
    if (chance(in_, 4)) {
      core_->reset_encoder_cache();
      (void)core_->reset_connector_cache();
    }
  }

  void set_drafts() {
    if (config_.speculation.num_spec_tokens == 0 || alive_.empty()) return;
    std::vector<TokenId> tokens(in_.below(config_.speculation.num_spec_tokens + 1));
    for (TokenId& token : tokens) token = static_cast<TokenId>(in_.below(3));
    const Draft draft{alive_[in_.below(static_cast<std::uint32_t>(std::min<std::size_t>(alive_.size(), 200)))], tokens};
    chance(in_, 3) ? core_->set_drafts_in_plan({&draft, 1}) : core_->set_drafts({&draft, 1});
  }

  void continue_session() {
    if (sessions_.ids.empty()) return;
    const RequestId id{sessions_.ids[in_.below(static_cast<std::uint32_t>(std::min<std::size_t>(sessions_.ids.size(), 200)))]};
    const std::vector<TokenId> tokens(1 + in_.below(6), 1);
    const SessionInput input{.tokens = tokens};
    (void)core_->continue_session(id, chance(in_, 5) ? nullptr : &input);
  }

  // Makes calls that must be refused and change nothing.
  void misuse() {
    StepResult result;
    result.step = StepId{1U << 30U};
    QUIRE_CHECK(!core_->apply(result), "not the next step");
    const RequestId unknown{next_id_ + 5};
    QUIRE_CHECK(core_->finish(unknown, RequestStatus::finished_aborted) == FinishEffect::unknown);
    QUIRE_CHECK(!core_->continue_session(unknown, nullptr), "no such session");
    if (!plans_.empty()) {
      const SampledToken stranger{unknown, 1};
      result.step = plans_.front().step;
      result.sampled = {&stranger, 1};
      QUIRE_CHECK(!core_->apply(result), "a token of a stranger");
    }
    if (!alive_.empty() && core_->view(alive_.front())) {
      const TokenId prompt[] = {1};
      QUIRE_CHECK(!core_->add({.id = alive_.front(), .prompt = prompt}), "an id is used once");
    }
  }

  Source& in_;
  CoreConfig config_;
  RandomConnector<Source> connector_;
  RandomGrammar<Source> grammar_;
  bool has_connector_, has_grammar_, has_items_;
  std::unique_ptr<Core> core_;
  std::uint64_t next_id_ = 0;
  std::vector<RequestId> alive_;
  Ids sessions_, poolings_;
  Ids received_;  // reported as received, and not yet scheduled
  std::deque<Planned> plans_;
  std::vector<SampledToken> sampled_;
  std::vector<RequestId> pooled_;
};

}  // namespace quire::test
