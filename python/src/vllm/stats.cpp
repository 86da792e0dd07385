// Converts statistics and KV events to plain values for the adapter.
#include <nanobind/stl/string.h>

#include "vllm/bridge.h"
#include "vllm/fast.h"

namespace quire::python {
namespace {

nb::object prefix_of(const PrefixCacheStats& s) {
  return nb::make_tuple(s.reset, s.requests, s.queries, s.hits, s.preempted_requests, s.preempted_queries, s.preempted_hits);
}

nb::object bytes_of(const std::vector<std::uint8_t>& data) {
  return nb::bytes(data.data(), data.size());
}

nb::object spec_of(const SpecDecodingStats& s) {
  nb::list per_position;
  for (const std::uint64_t count : s.num_accepted_per_position) per_position.append(count);
  nb::list drafted;
  for (const std::uint64_t count : s.num_drafted_per_position) drafted.append(count);
  return nb::make_tuple(s.num_spec_tokens, s.num_drafts, s.num_draft_tokens, s.num_accepted_tokens, per_position, drafted);
}

nb::object evictions_of(std::span<const KvEvictionEvent> evictions) {
  nb::list out;
  for (const KvEvictionEvent& event : evictions) {
    nb::list gaps;
    for (const double gap : event.reuse_gaps) gaps.append(gap);
    out.append(nb::make_tuple(event.lifetime, event.idle, nb::tuple(gaps)));
  }
  return out;
}

nb::object key_of(const KvExtraKey& key) {
  if (const auto* text = std::get_if<std::string>(&key)) return nb::cast(*text);
  if (const auto* item = std::get_if<MultimodalKey>(&key)) return nb::make_tuple(item->identifier, item->offset);
  return bytes_of(std::get<std::vector<std::uint8_t>>(key));
}

nb::object extra_keys_of(const BlockStored& event) {
  if (!event.extra_keys) return nb::none();
  nb::list out;
  for (const auto& keys : *event.extra_keys) {
    if (!keys) {
      out.append(nb::none());
      continue;
    }
    nb::list block;
    for (const KvExtraKey& key : *keys) block.append(key_of(key));
    out.append(nb::tuple(block));
  }
  return out;
}

nb::object event_of(const BlockStored& event) {
  nb::list hashes;
  for (const KvEventHash& hash : event.block_hashes) hashes.append(bytes_of(hash));
  return nb::make_tuple("stored", hashes, event.parent_block_hash ? bytes_of(*event.parent_block_hash) : nb::none(),
                        fast::list(std::span<const TokenId>(event.token_ids)), event.block_size,
                        event.lora_id ? nb::object(nb::int_(*event.lora_id)) : nb::none(), event.medium,
                        event.lora_name ? nb::object(nb::str(event.lora_name->c_str())) : nb::none(), extra_keys_of(event),
                        event.group_idx);
}

nb::object event_of(const BlockRemoved& event) {
  return nb::make_tuple("removed", bytes_of(event.block_hash), event.medium, event.group_idx);
}

nb::object event_of(const AllBlocksCleared&) {
  return nb::make_tuple("cleared");
}

}  // namespace

nb::object stats_of(const SchedulerStats* stats) {
  if (stats == nullptr) return nb::none();
  return nb::make_tuple(
      stats->num_running, stats->num_waiting, stats->kv_cache_usage, stats->encoder_cache_usage, prefix_of(stats->prefix_cache),
      stats->connector_prefix_cache ? prefix_of(*stats->connector_prefix_cache) : nb::none(),
      stats->spec_decoding ? spec_of(*stats->spec_decoding) : nb::none(), evictions_of(stats->evictions), stats->num_deferred);
}

nb::object events_of(std::span<const KvEvent> events) {
  if (events.empty()) return nb::none();
  nb::list out;
  for (const KvEvent& event : events) out.append(std::visit([](const auto& kind) { return event_of(kind); }, event));
  return out;
}

nb::object Bridge::make_stats() {
  return guarded([&] { return stats_of(core_->make_stats()); });
}

}  // namespace quire::python
