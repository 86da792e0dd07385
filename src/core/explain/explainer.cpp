// Follows requests through the core's events. On the core's thread, in the middle of its decisions: it copies facts and decides nothing.
// A request's record is made when it comes and kept for a while when it has ended; with a step nothing is done for those who only wait.
#include <algorithm>
#include <deque>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "core/explain/block_memory.h"
#include "core/explain/misses.h"
#include "core/explain/wait_clock.h"
#include "quire/core.h"
#include "quire/lab/explain.h"

namespace quire {
namespace {

struct Record {
  RequestExplanation facts;
  bool waits = true;
  // It came within a step, which could not know of it: it waits until the next one begins.
  bool is_fresh = true;
  double since_s = 0.0;
  EventCause passed_over = EventCause::none;  // in this step
  WaitSums before, except, own;               // the clock's when it began to wait; not to be counted of it; for causes of its own
  WaitSums first, later;                      // waits that are over
  LookedUp look_up;
};

std::vector<WaitFact> facts_of(const WaitSums& sums) {
  std::vector<WaitFact> facts;
  for (std::size_t i = 0; i < kNumEventCauses; ++i)
    if (sums.seconds[i] > 0.0 || sums.steps[i] > 0) facts.push_back({static_cast<EventCause>(i), sums.seconds[i], sums.steps[i]});
  std::ranges::sort(facts,
                    [](const WaitFact& a, const WaitFact& b) { return std::pair(b.seconds, a.cause) < std::pair(a.seconds, b.cause); });
  return facts;
}

}  // namespace

struct Explainer::Impl {
  explicit Impl(const ExplainOptions& given) : options(given), memory(std::max(given.num_blocks, 1U), given.block_size) {
    QUIRE_CHECK(options.block_size > 0 && options.hash_block_size > 0 && options.block_size % options.hash_block_size == 0,
                "blocks have whole names");
  }

  // Null: it came before follow().
  Record* find(RequestId id) {
    const auto found = live.find(id);
    return found == live.end() ? nullptr : &found->second;
  }

  void queue(RequestId id, double now_s) {
    const std::optional<RequestView> view = core->view(id);
    if (!view) return;
    Record& record = live.try_emplace(id).first->second;
    record.facts.id = id;
    record.facts.name = view->name;
    record.facts.tenant = view->tags->tenant;
    record.facts.queued_s = now_s;
    begin_waiting(id, record, now_s);
  }

  void begin_waiting(RequestId id, Record& record, double now_s) {
    record.waits = true;
    record.own = record.except = {};
    record.before = clock.sums();
    record.since_s = now_s;
    // What happens while a step is planned is held by what that step will say.
    record.is_fresh = now_s != clock.last_step_s();
    if (record.is_fresh) fresh.push_back(id);
  }

  [[nodiscard]] WaitSums waited(const Record& record, double now_s) const {
    WaitSums sums = record.own;
    if (record.is_fresh) {
      sums.add(clock.cause() == EventCause::paused ? EventCause::paused : EventCause::none, std::max(now_s - record.since_s, 0.0), 0);
      return sums;
    }
    for (std::size_t i = 0; i < kNumEventCauses; ++i) {
      sums.seconds[i] += clock.sums().seconds[i] - record.before.seconds[i] - record.except.seconds[i];
      sums.steps[i] += clock.sums().steps[i] - record.before.steps[i] - record.except.steps[i];
    }
    const EventCause now = record.passed_over != EventCause::none ? record.passed_over : clock.cause();
    sums.add(now, std::max(now_s - clock.last_step_s(), 0.0), 0);
    return sums;
  }

  void end_waiting(Record& record, double now_s) {
    if (!std::exchange(record.waits, false)) return;
    const WaitSums sums = waited(record, now_s);
    WaitSums& to = record.facts.admitted_s.has_value() ? record.later : record.first;
    for (std::size_t i = 0; i < kNumEventCauses; ++i) {
      to.add(static_cast<EventCause>(i), sums.seconds[i], sums.steps[i]);
      all.waited_s[i] += sums.seconds[i];
    }
    record.is_fresh = false;
    record.passed_over = EventCause::none;
  }

  void step_begins(double now_s) {
    const double elapsed_s = clock.step_begins(now_s);
    for (const RequestId id : passed) {
      Record* record = find(id);
      if (record == nullptr || !record->waits) continue;
      record->own.add(record->passed_over, elapsed_s, 1);
      record->except.add(clock.last_cause(), elapsed_s, 1);
      record->passed_over = EventCause::none;
    }
    passed.clear();
    for (const RequestId id : fresh) {
      Record* record = find(id);
      if (record == nullptr || !record->waits || !std::exchange(record->is_fresh, false)) continue;
      const bool paused = clock.last_cause() == EventCause::paused;
      record->own.add(paused ? EventCause::paused : EventCause::none, std::max(now_s - record->since_s, 0.0), 0);
      record->before = clock.sums();
    }
    fresh.clear();
  }

  void pass_over(const Event& event) {
    Record* record = find(event.owner);
    if (record == nullptr) return;
    if (!record->waits) begin_waiting(event.owner, *record, event.time_s);
    record->passed_over = event.cause;
    passed.push_back(event.owner);
  }

  void look_up(const Event& event) {
    Record* record = find(event.owner);
    if (record == nullptr) return;
    if (event.what == EventKind::prefix_looked_up) {
      record->look_up.in_cache = true;
      return;
    }
    record->look_up.is_known = true;
    record->look_up.num_cached = event.amount;
    record->look_up.num_external = event.external;
    record->look_up.at = memory.now();
    // Its load begins in this step, which nothing else tells of. Where the queue is held already it loads early, and waits for its turn.
    if (!event.load_async || clock.cause() != EventCause::none || !record->waits) return;
    record->passed_over = EventCause::loading;
    passed.push_back(event.owner);
  }

  // There is no room for what it would have loaded.
  void hold(const Event& event) {
    last_front = event.owner;
    clock.held(event.cause, event.owner);
    if (passed.empty() || passed.back() != event.owner) return;
    passed.pop_back();
    if (Record* record = find(event.owner)) record->passed_over = EventCause::none;
  }

  void admit(const Event& event) {
    Record* record = find(event.owner);
    if (record == nullptr) return;
    const bool is_first = !record->facts.admitted_s.has_value();
    record->facts.behind = last_front;
    end_waiting(*record, event.time_s);
    if (!is_first) return;
    record->facts.admitted_s = event.time_s;
    record->facts.admitted_step = event.step;
    const std::optional<RequestView> view = core->view(event.owner);
    QUIRE_CHECK(view.has_value(), "who is admitted is known");
    explain_admission(*view, record->look_up, event.amount, event.total, memory, options, record->facts);
    QUIRE_CHECK(event.amount + record->facts.num_missed == event.total, "each token of a prompt is there or has a cause");
    for (std::size_t i = 0; i < kNumMissCauses; ++i) all.missed_tokens[i] += record->facts.missed[i];
  }

  void preempt(const Event& event) {
    QUIRE_CHECK(event.cause != EventCause::none, "a preemption has a cause");
    ++all.preemptions[static_cast<std::size_t>(event.cause)];
    Record* record = find(event.owner);
    if (record == nullptr) return;
    const std::optional<RequestView> view = core->view(event.owner);
    ++record->facts.num_preemptions;
    if (record->facts.preemptions.size() < RequestExplanation::kMaxPreemptionFacts) {
      record->facts.preemptions.push_back({.step = event.step,
                                           .time_s = event.time_s,
                                           .cause = event.cause,
                                           .by = event.beneficiary,
                                           .num_missing_blocks = event.amount,
                                           .num_lost_tokens = view ? view->num_computed_tokens : 0});
    }
    begin_waiting(event.owner, *record, event.time_s);
  }

  [[nodiscard]] RequestExplanation shown(const Record& record, double now_s) const {
    RequestExplanation facts = record.facts;
    WaitSums first = record.first, later = record.later;
    if (record.waits) {
      const WaitSums open = waited(record, now_s);
      WaitSums& to = facts.admitted_s.has_value() ? later : first;
      for (std::size_t i = 0; i < kNumEventCauses; ++i) to.add(static_cast<EventCause>(i), open.seconds[i], open.steps[i]);
      facts.behind = clock.front();
    }
    facts.waits = facts_of(first);
    facts.later_waits = facts_of(later);
    return facts;
  }

  void end(const Event& event) {
    const auto found = live.find(event.owner);
    if (found == live.end()) return;
    end_waiting(found->second, event.time_s);
    found->second.facts.ended_s = event.time_s;
    if (options.num_ended > 0) {
      if (ended.size() == options.num_ended) ended.pop_front();
      QUIRE_CHECK(ended.size() < options.num_ended, "no more are kept than were asked for");
      ended.push_back(shown(found->second, event.time_s));
    }
    live.erase(found);
  }

  // Empty: it is not known any more, or of another tenant.
  [[nodiscard]] std::string name_of(RequestId id, const std::string& tenant) const {
    const RequestExplanation* facts = nullptr;
    if (const auto found = live.find(id); found != live.end())
      facts = &found->second.facts;
    else if (const auto known = std::ranges::find(ended, id, &RequestExplanation::id); known != ended.end())
      facts = &*known;
    return facts == nullptr || facts->tenant != tenant ? std::string() : facts->name;
  }

  [[nodiscard]] RequestExplanation with_names(RequestExplanation facts) const {
    facts.behind_name = name_of(facts.behind, facts.tenant);
    for (MissFact& miss : facts.misses) miss.by_name = name_of(miss.by, facts.tenant);
    for (PreemptionFact& preemption : facts.preemptions) preemption.by_name = name_of(preemption.by, facts.tenant);
    return facts;
  }

  void lose(const Event& event, Loss loss) { memory.lost(BlockMemory::key_of(event.name), loss, event); }

  void store(const Event& event) {
    const std::optional<RequestView> owner = core->view(event.owner);
    std::span<const TokenId> tokens;
    if (owner.has_value() && event.total >= options.block_size && event.total <= owner->tokens.size())
      tokens = owner->tokens.subspan(event.total - options.block_size, options.block_size);
    memory.stored(BlockMemory::key_of(event.name), BlockMemory::key_of(event.parent), tokens);
  }

  const ExplainOptions options;
  const Core* core = nullptr;
  BlockMemory memory;
  WaitClock clock;
  RequestId last_front{};  // of the last step in which somebody was held back
  std::unordered_map<RequestId, Record> live;
  std::deque<RequestExplanation> ended;  // the oldest first
  std::vector<RequestId> fresh, passed;  // since the last step began
  double last_event_s = 0.0;
  ExplainTotals all;
};

ExplainOptions ExplainOptions::of(const CoreConfig& config, std::uint32_t num_ended) {
  constexpr std::uint32_t kAtLeast = 65536;
  std::uint32_t block_size = config.block_size;
  for (const KvCacheGroup& group : config.kv.groups) {
    const std::uint32_t of_group = block_size_of(group.spec);
    // A state of the whole sequence is not found block by block.
    if (of_group < config.scheduler.max_model_len && of_group % config.block_size == 0) block_size = std::max(block_size, of_group);
  }
  return {.num_ended = num_ended,
          .num_blocks = config.kv.num_blocks + std::max(config.kv.num_blocks, kAtLeast),
          .block_size = block_size,
          .hash_block_size = config.block_size};
}

Explainer::Explainer(const ExplainOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Explainer::~Explainer() = default;

void Explainer::follow(const Core& core) {
  QUIRE_CHECK(impl_->core == nullptr, "it follows one core");
  impl_->core = &core;
}

void Explainer::on_event(const Event& event) {
  Impl& i = *impl_;
  QUIRE_CHECK(i.core != nullptr, "it follows a core");
  i.last_event_s = event.time_s;
  switch (event.what) {
    case EventKind::step_begins:
      return i.step_begins(event.time_s);
    case EventKind::queued:
      return i.queue(event.owner, event.time_s);
    case EventKind::forked:
      return i.queue(event.beneficiary, event.time_s);
    case EventKind::prefix_looked_up:
    case EventKind::admission_tried:
      return i.look_up(event);
    case EventKind::passed_over:
      return i.pass_over(event);
    case EventKind::queue_held:
      return i.hold(event);
    case EventKind::admitted:
      return i.admit(event);
    case EventKind::preempted:
      return i.preempt(event);
    case EventKind::ended:
      return i.end(event);
    case EventKind::block_cached:
      return i.store(event);
    case EventKind::block_evicted:
      return i.lose(event, Loss::evicted);
    case EventKind::block_forgotten:
      return i.lose(event, Loss::forgotten);
    case EventKind::cache_reset:
      return i.memory.reset(event);
    default:
      return;
  }
}

std::optional<RequestExplanation> Explainer::explain(RequestId id, double now_s) const {
  if (const auto found = impl_->live.find(id); found != impl_->live.end())
    return impl_->with_names(impl_->shown(found->second, std::max(now_s, impl_->last_event_s)));
  const auto found = std::ranges::find(impl_->ended, id, &RequestExplanation::id);
  return found == impl_->ended.end() ? std::nullopt : std::optional(impl_->with_names(*found));
}

std::vector<RequestId> Explainer::find(std::string_view name) const {
  std::vector<RequestId> ids;
  for (const RequestExplanation& facts : impl_->ended)
    if (facts.name == name) ids.push_back(facts.id);
  for (const auto& [id, record] : impl_->live)
    if (record.facts.name == name) ids.push_back(id);
  std::ranges::sort(ids);
  return ids;
}

EventCause Explainer::waits_for(RequestId id) const {
  const Record* record = impl_->find(id);
  if (record == nullptr || !record->waits) return EventCause::none;
  if (record->is_fresh) return impl_->clock.cause() == EventCause::paused ? EventCause::paused : EventCause::none;
  return record->passed_over != EventCause::none ? record->passed_over : impl_->clock.cause();
}

const ExplainTotals& Explainer::totals() const {
  return impl_->all;
}

}  // namespace quire
