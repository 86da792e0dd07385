#pragma once
// The state of the KV cache and of all requests between two steps, for a dashboard that refreshes a few times per second. The caller passes
// the previous frame again, so that its memory is reused. A frame contains values only, and no tokens of requests.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/events.h"
#include "quire/base/ids.h"

namespace quire {

// A block of the KV cache. The struct is small, because hundreds of thousands are copied while no step can run.
struct WatchedBlock {
  static constexpr std::uint32_t kNoOwner = UINT32_MAX;
  static constexpr std::uint8_t kCached = 1, kLoading = 2, kStoring = 4;  // has a block hash; is filled by a transfer; is read by a
                                                                          // transfer
  std::uint32_t owner = kNoOwner;                                         // low 32 bits of the id of a request that holds the block
  std::uint32_t last_use = 0;    // last allocation, hit or free, in units of 0.1 s of core time; 0: not since watching began
  std::uint16_t num_hits = 0;    // hits since the block was filled, or since watching began; saturates
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
  std::int64_t num_cached_tokens = -1;  // prompt tokens found at first admission, including in tiers; -1: not admitted yet
  std::int64_t num_external_tokens = 0;
  std::uint32_t num_preemptions = 0, num_blocks = 0;
  std::uint32_t name_size = 0, tenant_size = 0;  // sizes in bytes of the request's texts in `WatchFrame::text`
};

// A snapshot for the dashboard; Engine::watch() and Core::watch() fill it.
struct WatchFrame {
  static constexpr std::size_t kMaxRequests = 2048;
  double now_s = 0.0;                // core time
  std::vector<WatchedBlock> blocks;  // by id; the first is the null block, which has no owner
  // Running requests, then waiting requests in the order of the queues, then pinned requests; at most kMaxRequests.
  std::vector<WatchedRequest> requests;
  std::uint32_t num_left_out = 0;  // requests beyond kMaxRequests
  std::string text;                // the name and the tenant of each request, in the order of `requests`, without separators
};

}  // namespace quire
