#pragma once
// Batches of KV cache events as vLLM publishes them: msgpack of its KVEventBatch (distributed/kv_events.py). vLLM 0.19.0 writes events as
// arrays, 0.32.0 as maps with a "type" that tell of the cache group too. Routers read these bytes, so their order, and which nils are
// written, are part of the protocol.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/kv_events.h"
#include "quire/base/kv_spec.h"

namespace quire {

// How a block's hash is written: as the integer of its last eight bytes (vLLM's default), or all its bytes
// (VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0).
enum class KvHashForm : std::uint8_t { integer, bytes };

enum class KvEventFormat : std::uint8_t { vllm_0_19_0, vllm_0_32_0 };

// What 0.32.0 tells of a cache group with blocks of it.
struct KvEventGroup {
  std::string_view kind;
  std::optional<std::uint32_t> sliding_window;

  friend bool operator==(const KvEventGroup&, const KvEventGroup&) = default;
};

// As vLLM names kinds; one per group.
std::vector<KvEventGroup> kv_event_groups(std::span<const KvCacheGroup> groups);

struct KvEventEncoding {
  KvEventFormat format = KvEventFormat::vllm_0_19_0;
  KvHashForm hashes = KvHashForm::integer;
  std::vector<KvEventGroup> groups;  // for 0.32.0; of others nothing is told but their number
};

// [time_s, events, rank], appended. `time_s`: since 1970. `rank`: of the data-parallel engine.
void append_event_batch(std::string& out, double time_s, std::span<const KvEvent> events, std::uint32_t rank,
                        const KvEventEncoding& encoding);

}  // namespace quire
