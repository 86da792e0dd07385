#include "engine/tracer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

double wall_clock_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

Result<std::unique_ptr<Tracer>> Tracer::create(const TraceOptions& options, const TraceFacts& facts) {
  auto files = TraceFiles::open(options);
  if (!files) return std::unexpected(files.error());
  return std::unique_ptr<Tracer>(new Tracer(options, std::move(*files), facts));
}

Tracer::Tracer(const TraceOptions& options, TraceFiles files, const TraceFacts& facts)
    : every_(options.every), max_steps_(options.max_steps), num_groups_(facts.num_groups), writer_(std::move(files), facts) {}

void Tracer::begin(StepId step) {
  if (is_over()) return;
  step_ = writer_.take_blank();
  if (step_ == nullptr) {
    ++num_dropped_;
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
  core_->visit([this](QueueKind queue, const RequestView& view) { copy(queue, view); });
}

TraceSpan Tracer::copy(std::string_view text) {
  const TraceSpan span{static_cast<std::uint32_t>(step_->text.size()), static_cast<std::uint32_t>(text.size())};
  step_->text += text;
  return span;
}

TraceSpan Tracer::copy(std::span<const TokenId> tokens) {
  const TraceSpan span{static_cast<std::uint32_t>(step_->tokens.size()), static_cast<std::uint32_t>(tokens.size())};
  step_->tokens.insert(step_->tokens.end(), tokens.begin(), tokens.end());
  return span;
}

void Tracer::copy(QueueKind queue, const RequestView& view) {
  const std::span<const TokenId> prompt = view.tokens.first(view.num_prompt_tokens);
  std::size_t num_blocks = 0;
  for (std::uint32_t group = 0; group < num_groups_; ++group) num_blocks += core_->blocks(view.id, group).size();
  const std::span<const TokenId> outputs = view.tokens.subspan(view.num_prompt_tokens);
  step_->requests.push_back({.queue = queue,
                             .status = view.status,
                             .is_last_step = view.tags->is_last_step,
                             .is_prefill_chunk = view.is_prefill_chunk,
                             .resumable = view.resumable,
                             .id = view.id,
                             .name = copy(view.name),
                             .job = copy(view.tags->job),
                             .tenant = copy(view.tags->tenant),
                             .cache_salt = copy(view.cache_salt),
                             .prompt_prefix = copy(prompt.first(std::min(prompt.size(), kTracedPrompt))),
                             .prompt_suffix = copy(prompt.size() > kTracedPrompt ? prompt.last(kTracedPrompt) : prompt.first(0)),
                             .output_tail = copy(outputs.last(std::min(outputs.size(), kTracedTail))),
                             .priority = view.priority,
                             .arrival_time = view.arrival_time,
                             .client_index = view.client_index,
                             .max_tokens = view.max_tokens,
                             .num_prompt_tokens = view.num_prompt_tokens,
                             .num_tokens = static_cast<std::uint32_t>(view.tokens.size()),
                             .num_computed_tokens = view.num_computed_tokens,
                             .num_preemptions = view.num_preemptions,
                             .num_encoder_inputs = view.num_encoder_inputs,
                             .num_drafts = static_cast<std::uint32_t>(view.draft_tokens.size()),
                             .num_block_hashes = static_cast<std::uint32_t>(view.block_hashes.size() / sizeof(NameBytes)),
                             .num_blocks = static_cast<std::uint32_t>(num_blocks),
                             .num_cached_tokens = view.num_cached_tokens,
                             .num_external_computed_tokens = view.num_external_computed_tokens,
                             .stop_token = view.stop_token});
}

void Tracer::copy_lookup(const Event& event) {
  const std::optional<RequestView> view = core_->view(event.owner);
  QUIRE_CHECK(view.has_value(), "who is tried is known");
  step_->lookups.push_back({event, copy(view->tags->job), view->num_prompt_tokens});
}

void Tracer::on_event(const Event& event) {
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
  writer_.put(std::move(step_));
}

}  // namespace quire
