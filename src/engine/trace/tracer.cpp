// Copies the core's decisions into a step object for the writer. The core calls on_event() from within its functions, and the step loop
// calls planned(), on the engine thread in every step. To be fast, the tracer copies only numbers of requests that are already known. It
// never waits for the disk and never changes the core; if the writer is busy, it drops the step.
#include "engine/trace/tracer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/check_options.h"
#include "quire/engine_option_table.h"

namespace quire {
namespace {

double wall_clock_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

Result<void> check_trace(const TraceOptions& options) {
  return check_options(kTraceOptions, options);
}

Result<std::unique_ptr<StepTrace>> StepTrace::create(const TraceOptions& options, const CoreConfig& config, std::string connector) {
  if (auto valid = check_trace(options); !valid) return std::unexpected(valid.error());
  const SchedulerOptions& scheduler = config.scheduler;
  auto tracer = Tracer::create(options, {scheduler.policy, scheduler.max_num_seqs, scheduler.max_num_batched_tokens, std::move(connector)});
  if (!tracer) return std::unexpected(tracer.error());
  return std::move(*tracer);
}

Result<std::unique_ptr<Tracer>> Tracer::create(const TraceOptions& options, const TraceFacts& facts) {
  auto files = TraceFiles::open(options);
  if (!files) return std::unexpected(files.error());
  return std::unique_ptr<Tracer>(new Tracer(options, std::move(*files), facts));
}

Tracer::Tracer(const TraceOptions& options, TraceFiles files, const TraceFacts& facts)
    : every_(options.every), max_steps_(options.max_steps), writer_(std::move(files), facts) {}

void Tracer::begin(StepId step) {
  if (is_over()) return;
  step_ = writer_.take_blank();
  if (step_ == nullptr) {
    ++num_dropped_;
    // These events are dropped together with their step.
    events_before_.clear();
    return;
  }
  step_->clear();
  step_->events_before.swap(events_before_);
  step_->step = step;
  step_->time_s = wall_clock_s();
  step_->has_queues = step.value % every_ == 0;
  if (!step_->has_queues) return;
  ++num_steps_;
  const CoreCounters counters = core_->counters();
  step_->num_free_blocks = counters.num_free_blocks;
  step_->num_blocks = counters.num_blocks + 1;  // vLLM counts the null block
  step_->num_cached_blocks = counters.num_cached_blocks;
  if (tier_) step_->tier = tier_();
  copy_queues();
}

// Copies the requests of all queues. The constant properties of a request are sent once (send_facts()). Each step then contains a few
// numbers of each request, and its new outputs.
void Tracer::copy_queues() {
  last_order_.swap(order_);
  order_.clear();
  cursor_ = 0;
  core_->visit([this](QueueKind queue, const RequestView& view) { copy(queue, view); });
  forget_absent();
}

std::uint32_t Tracer::slot_of(const RequestView& view) {
  // The order of the queues hardly changes between steps, so the request is probably near the cursor.
  constexpr std::size_t kNear = 4;
  for (std::size_t i = cursor_; i < std::min(cursor_ + kNear, last_order_.size()); ++i) {
    if (traced_[last_order_[i]].id != view.id) continue;
    cursor_ = i + 1;
    return last_order_[i];
  }
  const auto found = slots_.find(view.id);
  return found == slots_.end() ? kNoSlot : found->second;
}

void Tracer::send_facts(const RequestView& view, std::uint32_t place) {
  const std::span<const TokenId> prompt = view.tokens.first(view.num_prompt_tokens);
  const std::span<const TokenId> prefix = prompt.first(std::min(prompt.size(), kTracedPrompt));
  const std::span<const TokenId> suffix = prompt.last(prompt.size() > kTracedPrompt ? kTracedPrompt : 0);
  step_->facts.push_back({.place = place,
                          .id = view.id,
                          .is_last_step = view.tags->is_last_step,
                          .name = std::string(view.name),
                          .job = view.tags->job,
                          .tenant = view.tags->tenant,
                          .cache_salt = std::string(view.cache_salt),
                          .hints = view.tags->hints,
                          .prompt_prefix = {prefix.begin(), prefix.end()},
                          .prompt_suffix = {suffix.begin(), suffix.end()},
                          .priority = view.priority,
                          .arrival_time = view.arrival_time,
                          .client_index = view.client_index,
                          .max_tokens = view.max_tokens,
                          .num_prompt_tokens = view.num_prompt_tokens,
                          .num_encoder_inputs = view.num_encoder_inputs});
  traced_[place] = {
      .id = view.id, .num_prompt_tokens = view.num_prompt_tokens, .num_tokens = view.num_prompt_tokens, .arrival_time = view.arrival_time};
}

void Tracer::copy(QueueKind queue, const RequestView& view) {
  const auto num_tokens = static_cast<std::uint32_t>(view.tokens.size());
  std::uint32_t place = slot_of(view);
  if (place == kNoSlot) {
    if (free_slots_.empty()) {
      free_slots_.push_back(static_cast<std::uint32_t>(traced_.size()));
      traced_.emplace_back();
    }
    place = free_slots_.back();
    free_slots_.pop_back();
    slots_.emplace(view.id, place);
    send_facts(view, place);
  } else if (const TracedState& known = traced_[place]; known.num_prompt_tokens != view.num_prompt_tokens ||
                                                        known.arrival_time != view.arrival_time || known.num_tokens > num_tokens) {
    send_facts(view, place);  // a session has continued
  }
  TracedState& followed = traced_[place];
  const std::uint32_t num_fresh = std::min(num_tokens - followed.num_tokens, static_cast<std::uint32_t>(kTracedTail));
  followed.num_tokens = num_tokens;
  followed.last_seen = num_steps_;
  order_.push_back(place);
  const std::span<const TokenId> fresh = view.tokens.last(num_fresh);
  step_->outputs.insert(step_->outputs.end(), fresh.begin(), fresh.end());
  step_->requests.push_back({.place = place,
                             .queue = queue,
                             .status = view.status,
                             .is_prefill_chunk = view.is_prefill_chunk,
                             .resumable = view.resumable,
                             .num_tokens = num_tokens,
                             .num_computed_tokens = view.num_computed_tokens,
                             .num_preemptions = view.num_preemptions,
                             .num_drafts = static_cast<std::uint32_t>(view.draft_tokens.size()),
                             .num_block_hashes = static_cast<std::uint32_t>(view.block_hashes.size() / sizeof(BlockHashBytes)),
                             .num_blocks = view.num_blocks,
                             .num_fresh_outputs = num_fresh,
                             .num_cached_tokens = view.num_cached_tokens,
                             .num_external_computed_tokens = view.num_external_computed_tokens,
                             .stop_token = view.stop_token});
}

// Forgets the requests that are no longer in any queue, because they have ended.
void Tracer::forget_absent() {
  for (const std::uint32_t place : last_order_) {
    if (traced_[place].last_seen == num_steps_) continue;
    slots_.erase(traced_[place].id);
    free_slots_.push_back(place);
  }
}

void Tracer::copy_lookup(const Event& event) {
  const std::optional<RequestView> view = core_->view(event.owner);
  QUIRE_CHECK(view.has_value(), "the core has the request that is looked up");
  step_->lookups.push_back({event, view->tags->job, view->num_prompt_tokens});
}

// Records an event. Events between two plans (results, ends, expiries) are kept for the next step, and come first in its record.
void Tracer::on_event(const Event& event) {
  // The queues and decisions in the record already show these events.
  if (event.what == EventKind::queued || event.what == EventKind::admitted || event.what == EventKind::ended) return;
  if (event.what == EventKind::step_begins) {
    is_planning_ = true;
    begin(event.step);
  } else if (!is_planning_) {
    if (!is_over()) events_before_.push_back(event);
  } else if (step_ != nullptr && event.what == EventKind::admission_tried) {
    copy_lookup(event);
  } else if (step_ != nullptr && event.what != EventKind::prefix_looked_up) {
    step_->events.push_back(event);
  }
}

void Tracer::planned(const StepPlan& plan) {
  is_planning_ = false;
  if (step_ == nullptr) return;
  for (const ScheduledRequest& s : plan.scheduled) {
    auto& part = s.kind == ScheduledKind::fresh ? step_->fresh : s.kind == ScheduledKind::resumed ? step_->resumed : step_->running;
    part.emplace_back(s.id, s.num_tokens);
  }
  step_->preempted.assign(plan.preempted.begin(), plan.preempted.end());
  step_->num_common_prefix_blocks.assign(plan.num_common_prefix_blocks.begin(), plan.num_common_prefix_blocks.end());
  writer_.put(std::move(step_));
}

}  // namespace quire
