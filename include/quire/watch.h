#pragma once
// What is in the KV cache and who waits for what, as of one moment between two steps: for a page that shows it, a few times a second.
// Values alone; whoever looks hands in the last one again, so that its memory is used anew. No token of anybody is in it.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/events.h"
#include "quire/base/ids.h"

namespace quire {

// A block of the pool. Kept small: there are hundreds of thousands, and they are copied while the engine stands still.
struct WatchedBlock {
  static constexpr std::uint32_t kNobody = UINT32_MAX;
  static constexpr std::uint8_t kCached = 1, kLoading = 2, kStoring = 4;  // it has a name; a transfer fills it, or reads it
  std::uint32_t owner = kNobody;                                          // the low half of the id of one of those that hold it
  std::uint32_t last_use = 0;    // when it was taken, found or given back last, in 0.1 s of the core's time; 0: not since one watches
  std::uint16_t num_hits = 0;    // how often it was found since it was filled, or one watches; saturates
  std::uint8_t num_holders = 0;  // 0: free; saturates
  std::uint8_t flags = 0;

  friend bool operator==(const WatchedBlock&, const WatchedBlock&) = default;
};

enum class WatchedState : std::uint8_t { queued, grammar, loading, input, preempted, prefill, decode, pinned };
inline constexpr std::size_t kNumWatchedStates = 8;

struct WatchedRequest {
  RequestId id{};
  WatchedState state = WatchedState::queued;
  EventCause waits_for = EventCause::none;  // while it waits, where somebody explains (EngineOptions::explained_requests)
  double arrival_s = 0.0;
  std::uint32_t num_prompt_tokens = 0, num_tokens = 0, num_computed_tokens = 0;
  std::int64_t num_cached_tokens = -1;  // found at its first admission, those from tiers among them; -1: not admitted yet
  std::int64_t num_external_tokens = 0;
  std::uint32_t num_preemptions = 0, num_blocks = 0;
  std::uint32_t name_size = 0, tenant_size = 0;  // in WatchFrame::text, one behind the other in the order of the requests
};

struct WatchFrame {
  static constexpr std::size_t kMaxRequests = 2048;
  double now_s = 0.0;                // the core's time
  std::vector<WatchedBlock> blocks;  // by id; the null block is the first, and nobody's
  std::vector<WatchedRequest>
      requests;                    // those that run, then those that wait, in the order of the queues; those pinned. The first kMaxRequests
  std::uint32_t num_left_out = 0;  // requests besides
  std::string text;                // each one's name, then its tenant
};

}  // namespace quire
