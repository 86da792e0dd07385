#pragma once
// Encodes batches of KV cache events as vLLM publishes them: as msgpack of vLLM's KVEventBatch (distributed/kv_events.py). vLLM 0.19.0
// writes events as arrays. vLLM 0.32.0 writes events as maps with a "type" and the cache group. Routers read these bytes, so the order of
// fields, and which fields are nil, are part of the protocol.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/kv_events.h"
#include "quire/base/kv_spec.h"

namespace quire {

// The published form of a block hash: the integer of its last eight bytes (vLLM's default), or all its bytes
// (VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0).
enum class KvHashForm : std::uint8_t { integer, bytes };

enum class KvEventFormat : std::uint8_t { vllm_0_19_0, vllm_0_32_0 };

// A cache group, as vLLM 0.32.0 describes it in events of stored blocks.
struct KvEventGroup {
  std::string_view kind;
  std::optional<std::uint32_t> sliding_window;

  friend bool operator==(const KvEventGroup&, const KvEventGroup&) = default;
};

// Returns one entry per cache group, with vLLM's name of its kind.
std::vector<KvEventGroup> kv_event_groups(std::span<const KvCacheGroup> groups);

struct KvEventEncoding {
  KvEventFormat format = KvEventFormat::vllm_0_19_0;
  KvHashForm hashes = KvHashForm::integer;
  std::vector<KvEventGroup> groups;  // for 0.32.0; of a group that is not listed, only the index is published
};

// Appends a batch: [time_s, events, rank]. `time_s` is in seconds since 1970, and `rank` is the data-parallel rank of the engine.
void append_event_batch(std::string& out, double time_s, std::span<const KvEvent> events, std::uint32_t rank,
                        const KvEventEncoding& encoding);

}  // namespace quire
