#pragma once
// The state of the KV cache and of all requests at one time between two steps, for a dashboard that refreshes a few times per second.
// Values only. The caller passes the previous frame again, so that its memory is reused. It contains no tokens of requests.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/events.h"
#include "quire/base/ids.h"

namespace quire {

// A block of the pool. It is small, because hundreds of thousands are copied while the engine cannot step.
struct WatchedBlock {
  static constexpr std::uint32_t kNoOwner = UINT32_MAX;
  static constexpr std::uint8_t kCached = 1, kLoading = 2, kStoring = 4;  // it has a block hash; a transfer fills it; a transfer reads it
  std::uint32_t owner = kNoOwner;                                         // low 32 bits of the id of one holder
  std::uint32_t last_use = 0;    // last time it was allocated, hit or freed, in units of 0.1 s of core time; 0: not since watching began
  std::uint16_t num_hits = 0;    // hits since it was filled, or since watching began; saturates
  std::uint8_t num_holders = 0;  // 0: free; saturates
  std::uint8_t flags = 0;

  friend bool operator==(const WatchedBlock&, const WatchedBlock&) = default;
};

// The current state of a request.
enum class WatchedState : std::uint8_t { queued, grammar, loading, input, preempted, prefill, decode, pinned };
inline constexpr std::size_t kNumWatchedStates = 8;

// One request in a frame.
struct WatchedRequest {
  RequestId id{};
  WatchedState state = WatchedState::queued;
  EventCause waits_for = EventCause::none;  // for a waiting request, if `EngineOptions::explained_requests` is above 0
  double arrival_s = 0.0;
  std::uint32_t num_prompt_tokens = 0, num_tokens = 0, num_computed_tokens = 0;
  std::int64_t num_cached_tokens = -1;  // hit at first admission, including tiers; -1: not admitted yet
  std::int64_t num_external_tokens = 0;
  std::uint32_t num_preemptions = 0, num_blocks = 0;
  std::uint32_t name_size = 0, tenant_size = 0;  // sizes of its texts in `WatchFrame::text`
};

// A snapshot for the dashboard; Engine::watch() and Core::watch() fill it.
struct WatchFrame {
  static constexpr std::size_t kMaxRequests = 2048;
  double now_s = 0.0;                // core time
  std::vector<WatchedBlock> blocks;  // by id; the null block is the first, without an owner
  // Running requests, then waiting ones in the order of the queues, then pinned ones; at most kMaxRequests.
  std::vector<WatchedRequest> requests;
  std::uint32_t num_left_out = 0;  // requests beyond kMaxRequests
  std::string text;                // name, then tenant of each request, in the order of `requests`
};

}  // namespace quire
