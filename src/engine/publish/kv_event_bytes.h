#pragma once
// Batches of KV cache events as vLLM 0.19.0 publishes them: msgpack of its KVEventBatch (distributed/kv_events.py, msgspec structs as
// arrays). Routers read these bytes, so their order and their trailing nils are part of the protocol.
#include <span>
#include <string>

#include "quire/kv_events.h"

namespace quire {

// How a block's hash is written: as the integer of its last eight bytes (vLLM's default), or all its bytes
// (VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0).
enum class KvHashForm : std::uint8_t { integer, bytes };

// [time_s, events, rank], appended. `time_s`: since 1970. `rank`: of the data-parallel engine.
void append_event_batch(std::string& out, double time_s, std::span<const KvEvent> events, std::uint32_t rank, KvHashForm form);

}  // namespace quire
