// Copies and reports the state of the core. Called by hosts, statistics and tests on the core's thread, between two calls of the core; it
// changes nothing. counters() and view() are cheap enough for every step, visit() visits all requests, snapshot() copies the whole state.
#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "core/schedule/state.h"

namespace quire {
namespace {

CoreSnapshot::Request copy_of(const Request& r, std::uint32_t num_groups) {
  CoreSnapshot::Request copy{.id = r.id,
                             .status = r.status,
                             .num_tokens = static_cast<std::uint32_t>(r.num_tokens()),
                             .num_computed_tokens = static_cast<std::uint32_t>(r.num_computed_tokens),
                             .num_preemptions = r.num_preemptions,
                             .num_output_placeholders = r.num_output_placeholders,
                             .num_cached_tokens = r.num_cached_tokens,
                             .num_external_computed_tokens = r.num_external_computed_tokens,
                             .is_prefill_chunk = r.is_prefill_chunk,
                             .discard_latest_async_tokens = r.in_flight.discards_latest_token,
                             .num_tokens_in_flight = r.in_flight.num_tokens,
                             .num_stale_tokens = r.in_flight.num_stale_tokens,
                             .drops_stale = r.in_flight.drops_stale_tokens,
                             .deferred = r.deferred,
                             .tokens = r.tokens,
                             .draft_tokens = r.draft_tokens,
                             .blocks = {},
                             .num_cached_blocks = {},
                             .block_hashes = {}};
  for (std::uint32_t group = 0; group < num_groups; ++group) {
    const auto blocks = r.blocks.blocks(group);
    copy.blocks.emplace_back(blocks.begin(), blocks.end());
    copy.num_cached_blocks.push_back(r.blocks.num_cached_blocks(group));
  }
  for (const BlockHash& hash : r.hashes) copy.block_hashes.insert(copy.block_hashes.end(), hash.bytes.begin(), hash.bytes.end());
  return copy;
}

std::vector<RequestId> ids_of(const RequestQueue& queue) {
  std::vector<RequestId> ids;
  queue.for_each([&](const Request& request) { ids.push_back(request.id); });
  return ids;
}

// Prefetches the part of the request that Requests::view() reads.
void prefetch(const Request& request) {
  constexpr std::ptrdiff_t kLineBytes = 64;
  const auto* end = reinterpret_cast<const std::byte*>(&request.tags);
  for (const auto* line = reinterpret_cast<const std::byte*>(&request); line < end; line += kLineBytes) __builtin_prefetch(line);
}

// Prefetches the memory outside the request that Requests::view() reads. Reads the request itself to find the addresses.
void prefetch_parts(const Request& request) {
  request.blocks.prefetch();
  if (!request.tokens.empty()) __builtin_prefetch(&request.tokens.back());
}

}  // namespace

CoreCounters Core::counters() const {
  const State& s = *state_;
  CoreCounters counters = s.context.totals;
  counters.num_running = static_cast<std::uint32_t>(s.queues.running.size());
  // An EventSink may call this during a step, when the requests skipped in that step are in a separate queue.
  const std::size_t num_skipped = s.queues.skipped_waiting.size() + s.queues.step_skipped.size();
  counters.num_waiting = static_cast<std::uint32_t>(s.queues.waiting.size() + num_skipped);
  QUIRE_CHECK(s.queues.num_waiting_for_input <= num_skipped || s.context.rules.block_holders_first,
              "sessions that wait for input are in a skipped queue");
  const auto running = static_cast<std::int32_t>(counters.num_running);
  const auto without_input = static_cast<std::int32_t>(s.queues.num_waiting_for_input);
  switch (s.queues.pause) {
    case PauseState::unpaused:
      counters.num_unfinished = running + static_cast<std::int32_t>(counters.num_waiting) - without_input;
      break;
    case PauseState::paused_new:
      counters.num_unfinished = running;
      // Requests that hold blocks are admitted in this state too.
      if (s.context.rules.block_holders_first)
        counters.num_unfinished += static_cast<std::int32_t>(s.queues.skipped_waiting.size()) - without_input;
      break;
    case PauseState::paused_all:
      counters.num_unfinished = 0;
      break;
  }
  counters.num_awaiting_transfers = s.queues.num_loading + s.ended.ledger().count(Holder::transfer) + s.swap.num_awaiting();
  counters.num_open_transfers = static_cast<std::uint32_t>(s.open_transfers.num_open());
  counters.is_admission_stopped = s.pressure.is_stopped();
  counters.num_used_swap_slots = s.swap.num_used_slots();
  counters.num_pinned = s.ended.ledger().count(Holder::pin);
  counters.num_blocks = s.context.config.kv.num_blocks - 1;
  counters.num_free_blocks = s.kv.pool().num_free_blocks();
  QUIRE_CHECK(counters.num_free_blocks <= counters.num_blocks, "the null block is not counted as free");
  counters.num_cached_blocks = s.kv.pool().index().size();
  counters.num_retained_blocks = s.kv.pool().free_queue().count(FreeSegment::retained);
  counters.num_evicted_blocks = s.kv.pool().num_evicted_blocks();
  return counters;
}

const StepPlan& Core::outstanding_plan(std::uint32_t index) const {
  return std::as_const(state_->plans).at(index).plan();
}

bool Core::all_blocks_free() const {
  return state_->kv.pool().num_free_blocks() == state_->context.config.kv.num_blocks - 1;
}

std::optional<RequestView> Core::view(RequestId id) const {
  const Request* request = state_->table.find(id);
  return request != nullptr ? std::optional(Requests::view(*request)) : std::nullopt;
}

std::span<const BlockId> Core::blocks(RequestId id, std::uint32_t group) const {
  const Request* request = state_->table.find(id);
  return request != nullptr ? request->blocks.blocks(group) : std::span<const BlockId>();
}

void Core::queues(std::vector<RequestId>& running, std::vector<RequestId>& waiting, std::vector<RequestId>& skipped_waiting) const {
  running.clear();
  for (const Request* request : state_->queues.running) running.push_back(request->id);
  waiting = ids_of(state_->queues.waiting);
  skipped_waiting = ids_of(state_->queues.skipped_waiting);
}

void Core::visit(const std::function<void(QueueKind, const RequestView&)>& visit) const {
  const State& s = *state_;
  // Prefetches the next requests: they are scattered in memory, and the model has evicted them from the CPU caches since the last step.
  constexpr std::size_t kNear = 4, kFar = 8;
  for (std::size_t i = 0; i < s.queues.running.size(); ++i) {
    if (i + kFar < s.queues.running.size()) prefetch(*s.queues.running[i + kFar]);
    if (i + kNear < s.queues.running.size()) prefetch_parts(*s.queues.running[i + kNear]);
    visit(QueueKind::running, Requests::view(*s.queues.running[i]));
  }
  s.queues.waiting.for_each([&](const Request& request) { visit(QueueKind::waiting, Requests::view(request)); });
  s.queues.skipped_waiting.for_each([&](const Request& request) { visit(QueueKind::skipped_waiting, Requests::view(request)); });
  for (const Pin& pin : s.jobs.pins()) QUIRE_CHECK(s.table.find(pin.request) != nullptr, "a pinned request is known");
  for (const Pin& pin : s.jobs.pins()) visit(QueueKind::pinned, Requests::view(*s.table.find(pin.request)));
}

std::uint32_t Core::ref_count(BlockId block) const {
  return state_->kv.pool().ref_count(block);
}

std::vector<std::uint8_t> Core::block_key(BlockId block) const {
  return state_->kv.pool().key_of(block);
}

void Core::snapshot(CoreSnapshot& out) const {
  const State& s = *state_;
  out = {};
  queues(out.running, out.waiting, out.skipped_waiting);
  for (const auto& [id, request] : s.table.all()) {
    if (request->known) {
      out.requests.push_back(copy_of(*request, s.context.num_groups));
      if (request->load.received) out.finished_receiving.push_back(id);
      if (request->load.failure == LoadFailure::partial) out.failed_receiving.push_back(id);
    }
  }
  for (const std::unique_ptr<SwappedBlocks>& swapped : s.swap.all())
    if (swapped->request != nullptr) out.swapped.emplace_back(swapped->request->id, swapped->places);
  std::ranges::sort(out.swapped);
  std::ranges::sort(out.requests, {}, &CoreSnapshot::Request::id);
  std::ranges::sort(out.finished_receiving);
  std::ranges::sort(out.failed_receiving);
  out.finished.assign(s.ending.finished().begin(), s.ending.finished().end());
  for (const Pin& pin : s.jobs.pins()) out.pinned.emplace_back(pin.request, pin.expiry);
  out.free_blocks = s.kv.pool().free_queue().to_vector();
  for (std::uint32_t i = 0; i < s.context.config.kv.num_blocks; ++i)
    out.blocks.push_back({s.kv.pool().ref_count(BlockId{i}), s.kv.pool().key_of(BlockId{i})});
  out.cached_blocks = s.kv.pool().index().to_vector();
  for (const KvResidency::Followed& life : s.kv.pool().residency().followed())
    out.residency.push_back({life.block, life.birth_ns, life.last_access_ns, life.accesses_ns});
  s.snapshot_encoder_cache(out);
}

void Core::State::snapshot_encoder_cache(CoreSnapshot& to) const {
  const EncoderCache& cache = encoder.cache();
  const auto entry = [&cache](std::string_view identifier) {
    const auto holders = cache.references(identifier);
    const auto num_embeds = static_cast<std::uint32_t>(cache.evictable_embeds(identifier));
    return CoreSnapshot::EncoderEntry{std::string(identifier), {holders.begin(), holders.end()}, num_embeds};
  };
  // An output without references is evictable. An output with references is among the inputs of the requests that reference it.
  std::set<std::string_view> cached;
  for (const std::string_view identifier : cache.evictable()) {
    to.encoder_freeable.push_back(entry(identifier));
    cached.insert(identifier);
  }
  for (const auto& [id, request] : table.all()) {
    for (const MultimodalFeature& feature : request->features)
      if (cache.contains(feature.identifier)) cached.insert(feature.identifier);
  }
  for (const std::string_view identifier : cached) to.encoder_cached.push_back(entry(identifier));
  to.encoder_freed.assign(cache.freed().begin(), cache.freed().end());
  to.encoder_to_report.assign(cache.to_report().begin(), cache.to_report().end());
  to.encoder_free_slots = static_cast<std::uint32_t>(cache.num_free());
  to.encoder_freeable_slots = static_cast<std::uint32_t>(cache.num_freeable());
}

}  // namespace quire
