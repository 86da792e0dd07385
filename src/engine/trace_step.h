#pragma once
// The facts of one step for the trace, copied on the engine thread; another thread makes text of them. The memory is used again.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "quire/core.h"
#include "quire/events.h"

namespace quire {

// Ids of tokens that a record shows.
inline constexpr std::size_t kTracedPrompt = 16;  // first and last of the prompt
inline constexpr std::size_t kTracedTail = 32;    // last of the output

// Where something lies in TraceStep::tokens or TraceStep::text.
struct TraceSpan {
  std::uint32_t begin = 0, size = 0;
};

struct TracedRequest {
  QueueKind queue;
  RequestStatus status;
  bool is_last_step = false, is_prefill_chunk = false, resumable = false;
  RequestId id;
  TraceSpan name{}, job{}, tenant{}, cache_salt{};
  TraceSpan prompt_prefix{}, prompt_suffix{}, output_tail{};
  std::int64_t priority = 0;
  double arrival_time = 0.0;
  std::uint32_t client_index = 0, max_tokens = 0, num_prompt_tokens = 0, num_tokens = 0, num_computed_tokens = 0, num_preemptions = 0;
  std::uint32_t num_encoder_inputs = 0, num_drafts = 0, num_block_hashes = 0, num_blocks = 0;
  std::int64_t num_cached_tokens = -1, num_external_computed_tokens = 0;
  std::optional<TokenId> stop_token{};
};

// A look-up of the prefix cache at an admission.
struct TracedLookup {
  Event event;
  TraceSpan job;
  std::uint32_t num_prompt_tokens = 0;
};

struct TraceStep {
  StepId step;
  double time_s = 0.0;      // s since 1970, when the step began
  bool has_queues = false;  // every n-th step; the others have look-ups and events only
  std::uint32_t num_free_blocks = 0, num_blocks = 0, num_cached_blocks = 0;
  std::vector<TracedRequest> requests;  // in the order of the queues
  std::vector<TracedLookup> lookups;
  std::vector<Event> events_before, events;                                  // since the plan before this one; of this one
  std::vector<std::pair<RequestId, std::uint32_t>> fresh, resumed, running;  // scheduled, with the number of tokens, in the plan's order
  std::vector<RequestId> preempted;
  std::vector<TokenId> tokens;
  std::string text;

  // Keeps the memory.
  void clear() {
    requests.clear();
    lookups.clear();
    events_before.clear();
    events.clear();
    fresh.clear();
    resumed.clear();
    running.clear();
    preempted.clear();
    tokens.clear();
    text.clear();
  }
};

}  // namespace quire
