// Converts a `CoreSnapshot` to a dict.
#include <nanobind/stl/string.h>

#include <cstdint>
#include <vector>

#include "plan.h"

namespace quire::python {
namespace {

nb::bytes bytes_of(const std::vector<std::uint8_t>& data) {
  return nb::bytes(data.data(), data.size());
}

nb::dict request_of(const CoreSnapshot::Request& r) {
  nb::dict out;
  out["id"] = r.id.value;
  out["status"] = r.status;
  out["num_tokens"] = r.num_tokens;
  out["num_computed_tokens"] = r.num_computed_tokens;
  out["num_output_placeholders"] = r.num_output_placeholders;
  out["num_preemptions"] = r.num_preemptions;
  out["num_cached_tokens"] = r.num_cached_tokens;
  out["num_external_computed_tokens"] = r.num_external_computed_tokens;
  out["is_prefill_chunk"] = r.is_prefill_chunk;
  out["discard_latest_async_tokens"] = r.discard_latest_async_tokens;
  out["num_tokens_in_flight"] = r.num_tokens_in_flight;
  out["num_stale_tokens"] = r.num_stale_tokens;
  out["drops_stale"] = r.drops_stale;
  out["deferred"] = r.deferred;
  out["tokens"] = list_of(r.tokens);
  out["draft_tokens"] = list_of(r.draft_tokens);
  nb::list blocks;
  for (const auto& group : r.blocks) blocks.append(list_of_ids(group));
  out["blocks"] = blocks;
  nb::list cached;
  for (const auto& count : r.num_cached_blocks) cached.append(count ? nb::cast(*count) : nb::none());
  out["num_cached_blocks"] = cached;
  out["block_hashes"] = bytes_of(r.block_hashes);
  return out;
}

nb::list encoder_of(const std::vector<CoreSnapshot::EncoderEntry>& entries) {
  nb::list out;
  for (const auto& entry : entries) out.append(nb::make_tuple(entry.identifier, list_of_ids(entry.holders), entry.num_embeds));
  return out;
}

}  // namespace

nb::object to_python(const CoreSnapshot& s) {
  nb::dict out;
  out["running"] = list_of_ids(s.running);
  out["waiting"] = list_of_ids(s.waiting);
  out["skipped_waiting"] = list_of_ids(s.skipped_waiting);
  nb::list requests;
  for (const auto& request : s.requests) requests.append(request_of(request));
  out["requests"] = requests;
  out["free_blocks"] = list_of_ids(s.free_blocks);
  nb::list ref_counts, keys;
  for (const auto& block : s.blocks) {
    ref_counts.append(nb::cast(block.ref_count));
    keys.append(block.key.empty() ? nb::none() : nb::object(bytes_of(block.key)));
  }
  out["ref_counts"] = ref_counts;
  out["keys"] = keys;
  out["cached_blocks"] = list_of_ids(s.cached_blocks);
  nb::list residency;
  for (const auto& life : s.residency)
    residency.append(nb::make_tuple(life.block.value, life.birth, life.last_access, list_of(life.accesses)));
  out["residency"] = residency;
  out["encoder_freed"] = list_of(s.encoder_freed);
  out["encoder_to_report"] = list_of(s.encoder_to_report);
  out["encoder_cached"] = encoder_of(s.encoder_cached);
  out["encoder_freeable"] = encoder_of(s.encoder_freeable);
  out["encoder_free_slots"] = s.encoder_free_slots;
  out["encoder_freeable_slots"] = s.encoder_freeable_slots;
  out["finished"] = list_of_ids(s.finished);
  out["finished_receiving"] = list_of_ids(s.finished_receiving);
  out["failed_receiving"] = list_of_ids(s.failed_receiving);
  return out;
}

}  // namespace quire::python
