// Follows requests through the core's events. Runs on the core's thread, while the core decides: it copies facts and decides nothing. A
// request's record is created when the request arrives, and is kept for some time after its end. A step costs nothing for requests that
// only wait.
#include <algorithm>
#include <deque>
#include <functional>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "core/explain/block_history_table.h"
#include "core/explain/misses.h"
#include "core/explain/wait_clock.h"
#include "quire/core.h"
#include "quire/lab/explain.h"

namespace quire {
namespace {

struct Record {
  RequestExplanation facts;
  bool waits = true;
  // The wait began during a step that could not consider the request. It is counted from the next step on.
  bool is_fresh = true;
  double since_s = 0.0;
  EventCause passed_over = EventCause::none;  // why the current step has skipped the request
  // `before`: the clock's sums when the wait began. `except`: parts of the clock's sums that do not count. `own`: times with a separate
  // cause.
  WaitSums before, except, own;
  WaitSums first, later;          // waits that have ended, before and after the first admission
  std::uint64_t num_holds = 0;    // clock.num_holds() at the newest step in which the request was skipped for a separate cause
  std::uint32_t num_at_risk = 0;  // number of computed tokens at the last preemption
  LookUpResult look_up;
};

std::vector<WaitFact> facts_of(const WaitSums& sums) {
  std::vector<WaitFact> facts;
  for (std::size_t i = 0; i < kNumEventCauses; ++i)
    if (sums.seconds[i] > 0.0 || sums.steps[i] > 0) facts.push_back({static_cast<EventCause>(i), sums.seconds[i], sums.steps[i]});
  std::ranges::sort(facts,
                    [](const WaitFact& a, const WaitFact& b) { return std::pair(b.seconds, a.cause) < std::pair(a.seconds, b.cause); });
  return facts;
}

// Returns whether the list of preemptions, whose length is limited, contains the last one.
bool has_newest_preemption(const RequestExplanation& facts) {
  return !facts.preemptions.empty() && facts.num_preemptions == facts.preemptions.size();
}

}  // namespace

struct Explainer::Impl {
  explicit Impl(const ExplainOptions& given) : options(given), memory(std::max(given.num_blocks, 1U), given.block_size) {
    QUIRE_CHECK(options.block_size > 0 && options.hash_block_size > 0 && options.block_size % options.hash_block_size == 0,
                "a block is a whole number of hash blocks");
  }

  // Returns the record of a request that has not ended, or null. Requests that arrived before follow() have none.
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
    record.look_up.tenant = note_tenant(view->tags->tenant);
    record.facts.queued_s = now_s;
    begin_waiting(id, record, now_s);
  }

  void begin_waiting(RequestId id, Record& record, double now_s) {
    record.waits = true;
    record.own = record.except = {};
    record.before = clock.sums();
    record.since_s = now_s;
    record.num_holds = clock.num_holds();
    // If the wait begins while a step is planned, it counts for the cause that this step reports.
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
      record->num_holds = clock.num_holds();
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
    // Records the found blocks before the request's new blocks are stored after them.
    if (has_tenants && (!record->look_up.is_known || record->look_up.num_cached != event.amount))
      own_found(event.owner, record->look_up.tenant, event.amount);
    record->look_up.is_known = true;
    record->look_up.num_cached = event.amount;
    record->look_up.num_external = event.external;
    record->look_up.at = memory.now();
    // The request's load begins in this step, which no other event reports. If the queue is already held, the request loads early and still
    // waits for its turn.
    if (!event.load_async || clock.cause() != EventCause::none || !record->waits) return;
    record->passed_over = EventCause::loading;
    passed.push_back(event.owner);
  }

  // Called when a request holds the queue. If this request had just found a load, blocks are missing for the load, so it is not loading.
  void hold(const Event& event) {
    clock.held(event.cause, event.owner);
    if (passed.empty() || passed.back() != event.owner) return;
    passed.pop_back();
    if (Record* record = find(event.owner)) record->passed_over = EventCause::none;
  }

  void admit(const Event& event) {
    Record* record = find(event.owner);
    if (record == nullptr) return;
    const bool is_first = !record->facts.admitted_s.has_value();
    record->facts.blocked_by = blocked_by(*record);
    end_waiting(*record, event.time_s);
    if (!is_first) {
      if (has_newest_preemption(record->facts))
        record->facts.preemptions.back().num_lost_tokens = record->num_at_risk - std::min(record->num_at_risk, event.amount);
      return;
    }
    record->facts.admitted_s = event.time_s;
    record->facts.admitted_step = event.step;
    const std::optional<RequestView> view = core->view(event.owner);
    QUIRE_CHECK(view.has_value(), "an admitted request is known to the core");
    explain_admission(*view, record->look_up, event.amount, event.total, memory, options, record->facts);
    QUIRE_CHECK(event.amount + record->facts.num_missed == event.total, "each prompt token is computed before or has a cause of its miss");
    for (std::size_t i = 0; i < kNumMissCauses; ++i) all.missed_tokens[i] += record->facts.missed[i];
  }

  // Records found blocks as blocks of the request's tenant, even if another tenant computed them.
  void own_found(RequestId id, std::uint64_t tenant, std::uint32_t num_found) {
    const std::optional<RequestView> view = core->view(id);
    if (!view) return;
    std::uint64_t parent = 0;
    for (std::uint32_t block = 0; (block + 1) * options.block_size <= num_found; ++block) {
      const std::optional<std::uint64_t> key = key_of_block(view->block_hashes, block, options);
      if (!key) return;
      const BlockHistory* history = memory.find(*key, tenant);
      if (history == nullptr || history->num_copies == 0)
        memory.stored(*key, parent, tenant, view->tokens.subspan(std::size_t{block} * options.block_size, options.block_size));
      parent = *key;
    }
  }

  // Returns a digest of the tenant's name, which identifies the tenant in records.
  std::uint64_t note_tenant(const std::string& name) {
    const std::uint64_t tenant = tenant_of(name);
    has_tenants |= first_tenant.value_or(tenant) != tenant;
    first_tenant = first_tenant.value_or(tenant);
    return tenant;
  }
  [[nodiscard]] static std::uint64_t tenant_of(std::string_view name) { return std::hash<std::string_view>{}(name); }

  void preempt(const Event& event) {
    QUIRE_CHECK(event.cause != EventCause::none, "a preemption has a cause");
    ++all.preemptions[static_cast<std::size_t>(event.cause)];
    Record* record = find(event.owner);
    if (record == nullptr) return;
    const std::optional<RequestView> view = core->view(event.owner);
    record->num_at_risk = view ? view->num_computed_tokens : 0;
    ++record->facts.num_preemptions;
    if (record->facts.preemptions.size() < RequestExplanation::kMaxPreemptionFacts) {
      record->facts.preemptions.push_back({.step = event.step,
                                           .time_s = event.time_s,
                                           .cause = event.cause,
                                           .by = event.beneficiary,
                                           .num_missing_blocks = event.amount,
                                           .num_lost_tokens = record->num_at_risk});
    }
    begin_waiting(event.owner, *record, event.time_s);
  }

  // Called when the blocks of a preempted request were swapped out, so that no token is computed again, or when this swap was lost.
  void swap(const Event& event, bool is_lost) {
    Record* record = find(event.owner);
    if (record == nullptr || !has_newest_preemption(record->facts)) return;
    PreemptionFact& fact = record->facts.preemptions.back();
    fact.swapped_out = !is_lost;
    fact.num_lost_tokens = is_lost ? record->num_at_risk : 0;
  }

  // Returns the request at the front of the queue in the last step in which the queue was held and this request with it. Returns 0 if this
  // request was at the front, or if no such step exists.
  [[nodiscard]] RequestId blocked_by(const Record& record) const {
    if (!record.waits || record.num_holds == clock.num_holds()) return record.facts.blocked_by;
    return clock.last_front() == record.facts.id ? RequestId{} : clock.last_front();
  }

  [[nodiscard]] RequestExplanation shown(const Record& record, double now_s) const {
    RequestExplanation facts = record.facts;
    WaitSums first = record.first, later = record.later;
    if (record.waits) {
      const WaitSums open = waited(record, now_s);
      WaitSums& to = facts.admitted_s.has_value() ? later : first;
      for (std::size_t i = 0; i < kNumEventCauses; ++i) to.add(static_cast<EventCause>(i), open.seconds[i], open.steps[i]);
      if (!record.is_fresh && record.passed_over == EventCause::none) facts.blocked_by = blocked_by(record);
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
      QUIRE_CHECK(ended.size() < options.num_ended, "at most num_ended ended requests are kept");
      ended.push_back(shown(found->second, event.time_s));
    }
    live.erase(found);
  }

  // Returns the request's name. Returns an empty name if the request is no longer known or belongs to another tenant.
  [[nodiscard]] std::string name_of(RequestId id, const std::string& tenant) const {
    const RequestExplanation* facts = nullptr;
    if (const auto found = live.find(id); found != live.end())
      facts = &found->second.facts;
    else if (const auto known = std::ranges::find(ended, id, &RequestExplanation::id); known != ended.end())
      facts = &*known;
    return facts == nullptr || facts->tenant != tenant ? std::string() : facts->name;
  }

  [[nodiscard]] RequestExplanation with_names(RequestExplanation facts) const {
    facts.blocked_by_name = name_of(facts.blocked_by, facts.tenant);
    for (MissFact& miss : facts.misses) miss.by_name = name_of(miss.by, facts.tenant);
    for (PreemptionFact& preemption : facts.preemptions) preemption.by_name = name_of(preemption.by, facts.tenant);
    return facts;
  }

  void lose(const Event& event, Loss loss) { memory.lost(BlockHistoryTable::key_of(event.name), loss, event); }

  void store(const Event& event) {
    const std::optional<RequestView> owner = core->view(event.owner);
    std::span<const TokenId> tokens;
    if (owner.has_value() && event.total >= options.block_size && event.total <= owner->tokens.size())
      tokens = owner->tokens.subspan(event.total - options.block_size, options.block_size);
    const std::uint64_t tenant = owner.has_value() ? tenant_of(owner->tags->tenant) : 0;
    memory.stored(BlockHistoryTable::key_of(event.name), BlockHistoryTable::key_of(event.parent), tenant, tokens);
  }

  const ExplainOptions options;
  const Core* core = nullptr;
  BlockHistoryTable memory;
  WaitClock clock;
  std::optional<std::uint64_t> first_tenant;
  bool has_tenants = false;  // requests of more than one tenant have arrived
  std::unordered_map<RequestId, Record> live;
  std::deque<RequestExplanation> ended;  // oldest first
  std::vector<RequestId> fresh, passed;  // since the last step began
  double last_event_s = 0.0;
  ExplainTotals all;
};

ExplainOptions ExplainOptions::of(const CoreConfig& config, std::uint32_t num_ended) {
  constexpr std::uint32_t kAtLeast = 65536;
  std::uint32_t block_size = config.block_size;
  for (const KvCacheGroup& group : config.kv.groups) {
    const std::uint32_t of_group = block_size_of(group.spec);
    // States that cover the whole sequence are not found block by block.
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
  QUIRE_CHECK(impl_->core == nullptr, "the explainer follows one core");
  impl_->core = &core;
}

void Explainer::on_event(const Event& event) {
  Impl& i = *impl_;
  QUIRE_CHECK(i.core != nullptr, "the explainer follows a core before the first event");
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
    case EventKind::swapped_out:
      return i.swap(event, false);
    case EventKind::swap_lost:
      return i.swap(event, true);
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

TenantPrefix Explainer::tenant_prefix(std::string_view tenant, std::span<const std::uint8_t> block_hashes) const {
  TenantPrefix prefix;
  bool are_cached = true;
  for (std::uint32_t block = 0;; ++block) {
    const std::optional<std::uint64_t> key = key_of_block(block_hashes, block, impl_->options);
    const BlockHistory* history = key ? impl_->memory.find(*key, Impl::tenant_of(tenant)) : nullptr;
    if (history == nullptr) return prefix;
    prefix.num_known_tokens += impl_->options.block_size;
    are_cached = are_cached && history->num_copies > 0;
    prefix.num_cached_tokens += are_cached ? impl_->options.block_size : 0;
  }
}

const ExplainTotals& Explainer::totals() const {
  return impl_->all;
}

}  // namespace quire
