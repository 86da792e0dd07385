#pragma once
// The facts of one step for the trace, copied on the engine thread; another thread makes text of them. The memory is used again.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "quire/base/events.h"
#include "quire/core.h"

namespace quire {

// Ids of tokens that a record shows.
inline constexpr std::size_t kTracedPrompt = 16;  // first and last of the prompt
inline constexpr std::size_t kTracedTail = 32;    // last of the output

// What stays as it is: sent when a request is first seen, and anew when more input goes on with a session.
struct TracedFacts {
  std::uint32_t place = 0;  // in the table of the one who writes; the place of a request that is gone is used again
  RequestId id;
  bool is_last_step = false;
  std::string name{}, job{}, tenant{}, cache_salt{};
  std::vector<std::pair<std::string, std::string>> hints{};
  std::vector<TokenId> prompt_prefix{}, prompt_suffix{};
  std::int64_t priority = 0;
  double arrival_time = 0.0;
  std::uint32_t client_index = 0, max_tokens = 0, num_prompt_tokens = 0, num_encoder_inputs = 0;
};

// What changes from step to step: no more than a cache line, for a thousand of these are copied per step.
struct TracedRequest {
  std::uint32_t place = 0;  // of its facts
  QueueKind queue = QueueKind::running;
  RequestStatus status = RequestStatus::running;
  bool is_prefill_chunk = false, resumable = false;
  std::uint32_t num_tokens = 0, num_computed_tokens = 0, num_preemptions = 0, num_drafts = 0, num_block_hashes = 0, num_blocks = 0;
  std::uint32_t num_fresh_outputs = 0;  // since its last record, kTracedTail at most: the next so many of TraceStep::outputs
  std::int64_t num_cached_tokens = -1, num_external_computed_tokens = 0;
  std::optional<TokenId> stop_token{};
};
static_assert(sizeof(TracedRequest) <= 64);

// A look-up of the prefix cache at an admission.
struct TracedLookup {
  Event event;
  std::string job;
  std::uint32_t num_prompt_tokens = 0;
};

// The places of the nearest tier below the KV cache.
struct TracedTier {
  std::uint32_t num_free = 0, num_places = 0, num_held = 0;
};

struct TraceStep {
  StepId step;
  double time_s = 0.0;      // s since 1970, when the step began
  bool has_queues = false;  // every n-th step; the others have look-ups and events only
  std::uint32_t num_free_blocks = 0, num_blocks = 0, num_cached_blocks = 0;
  std::optional<TracedTier> tier{};     // with the queues
  std::vector<TracedFacts> facts;       // news, before `requests` refer to them
  std::vector<TracedRequest> requests;  // in the order of the queues
  std::vector<TokenId> outputs;
  std::vector<TracedLookup> lookups;
  std::vector<Event> events_before, events;                                  // since the plan before this one; of this one
  std::vector<std::pair<RequestId, std::uint32_t>> fresh, resumed, running;  // scheduled, with the number of tokens, in the plan's order
  std::vector<RequestId> preempted;
  std::vector<std::uint32_t> num_common_prefix_blocks;  // per cache group; zeros where they are not counted

  // Keeps the memory.
  void clear() {
    tier.reset();
    facts.clear();
    requests.clear();
    outputs.clear();
    lookups.clear();
    events_before.clear();
    events.clear();
    fresh.clear();
    resumed.clear();
    running.clear();
    preempted.clear();
    num_common_prefix_blocks.clear();
  }
};

}  // namespace quire
