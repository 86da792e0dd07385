// Everything the core holds, copied out.
#include <algorithm>
#include <set>

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
                             .discard_latest_async_tokens = r.discard_latest_async_tokens,
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

// What a view of it reads.
void prefetch(const Request& request) {
  constexpr std::ptrdiff_t kLineBytes = 64;
  const auto* end = reinterpret_cast<const std::byte*>(&request.tags);
  for (const auto* line = reinterpret_cast<const std::byte*>(&request); line < end; line += kLineBytes) __builtin_prefetch(line);
}

// What a view of it reads elsewhere; to know where, the request itself is read.
void prefetch_parts(const Request& request) {
  request.blocks.prefetch();
  if (!request.tokens.empty()) __builtin_prefetch(&request.tokens.back());
}

}  // namespace

void Core::queues(std::vector<RequestId>& running, std::vector<RequestId>& waiting, std::vector<RequestId>& skipped_waiting) const {
  running.clear();
  for (const Request* request : state_->running) running.push_back(request->id);
  waiting = ids_of(state_->waiting);
  skipped_waiting = ids_of(state_->skipped_waiting);
}

void Core::visit(const std::function<void(QueueKind, const RequestView&)>& visit) const {
  const State& s = *state_;
  // A thousand requests lie all over a memory that the model has gone through since the last step: the next ones are fetched meanwhile.
  constexpr std::size_t kNear = 4, kFar = 8;
  for (std::size_t i = 0; i < s.running.size(); ++i) {
    if (i + kFar < s.running.size()) prefetch(*s.running[i + kFar]);
    if (i + kNear < s.running.size()) prefetch_parts(*s.running[i + kNear]);
    visit(QueueKind::running, s.view(*s.running[i]));
  }
  s.waiting.for_each([&](const Request& request) { visit(QueueKind::waiting, s.view(request)); });
  s.skipped_waiting.for_each([&](const Request& request) { visit(QueueKind::skipped_waiting, s.view(request)); });
  if (!s.agent) return;
  for (const Pin& pin : s.agent->pins.all()) visit(QueueKind::pinned, s.view(*s.table.find(pin.request)));
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
      out.requests.push_back(copy_of(*request, s.num_groups));
      if (request->finished_receiving) out.finished_receiving.push_back(id);
      if (request->failed_receiving) out.failed_receiving.push_back(id);
    }
  }
  std::ranges::sort(out.requests, {}, &CoreSnapshot::Request::id);
  std::ranges::sort(out.finished_receiving);
  std::ranges::sort(out.failed_receiving);
  out.finished = s.finished;
  if (s.agent)
    for (const Pin& pin : s.agent->pins.all()) out.pinned.emplace_back(pin.request, pin.expiry);
  out.free_blocks = s.kv.pool().free_queue().to_vector();
  for (std::uint32_t i = 0; i < s.config.kv.num_blocks; ++i)
    out.blocks.push_back({s.kv.pool().ref_count(BlockId{i}), s.kv.pool().key_of(BlockId{i})});
  out.cached_blocks = s.kv.pool().index().to_vector();
  for (const KvResidency::Followed& life : s.kv.pool().residency().followed())
    out.residency.push_back({life.block, life.birth_ns, life.last_access_ns, life.accesses_ns});
  s.snapshot_encoder_cache(out);
}

void Core::State::snapshot_encoder_cache(CoreSnapshot& to) const {
  const auto entry = [this](std::string_view identifier) {
    const auto holders = encoder_cache.references(identifier);
    const auto num_embeds = static_cast<std::uint32_t>(encoder_cache.evictable_embeds(identifier));
    return CoreSnapshot::EncoderEntry{std::string(identifier), {holders.begin(), holders.end()}, num_embeds};
  };
  // What nobody refers to can be evicted; whoever refers to something has it among its inputs.
  std::set<std::string_view> cached;
  for (const std::string_view identifier : encoder_cache.evictable()) {
    to.encoder_freeable.push_back(entry(identifier));
    cached.insert(identifier);
  }
  for (const auto& [id, request] : table.all()) {
    for (const MultimodalFeature& feature : request->features)
      if (encoder_cache.contains(feature.identifier)) cached.insert(feature.identifier);
  }
  for (const std::string_view identifier : cached) to.encoder_cached.push_back(entry(identifier));
  to.encoder_freed.assign(encoder_cache.freed().begin(), encoder_cache.freed().end());
  to.encoder_to_report.assign(encoder_cache.to_report().begin(), encoder_cache.to_report().end());
  to.encoder_free_slots = static_cast<std::uint32_t>(encoder_cache.num_free());
  to.encoder_freeable_slots = static_cast<std::uint32_t>(encoder_cache.num_freeable());
}

}  // namespace quire
