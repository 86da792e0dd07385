#pragma once
// The data of one step for the trace. The engine thread copies the data, and another thread converts it to text. The memory is reused.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "quire/base/events.h"
#include "quire/core.h"

namespace quire {

// Numbers of token ids in the record of a request.
inline constexpr std::size_t kTracedPrompt = 16;  // first tokens of the prompt, and the same number of last tokens
inline constexpr std::size_t kTracedTail = 32;    // last tokens of the output

// The constant properties of a request. Sent when the request is first seen, and again when a session continues with more input.
struct TracedFacts {
  std::uint32_t place = 0;  // slot in the writer's table; slots of forgotten requests are reused
  RequestId id;
  bool is_last_step = false;
  std::string name{}, job{}, tenant{}, cache_salt{};
  std::vector<std::pair<std::string, std::string>> hints{};
  std::vector<TokenId> prompt_prefix{}, prompt_suffix{};
  std::int64_t priority = 0;
  double arrival_time = 0.0;
  std::uint32_t client_index = 0, max_tokens = 0, num_prompt_tokens = 0, num_encoder_inputs = 0;
};

// The properties of a request that change from step to step. At most one cache line long, because up to a thousand of these are copied per
// step.
struct TracedRequest {
  std::uint32_t place = 0;  // slot of the request's TracedFacts
  QueueKind queue = QueueKind::running;
  RequestStatus status = RequestStatus::running;
  bool is_prefill_chunk = false, resumable = false;
  std::uint32_t num_tokens = 0, num_computed_tokens = 0, num_preemptions = 0, num_drafts = 0, num_block_hashes = 0, num_blocks = 0;
  std::uint32_t num_fresh_outputs = 0;  // outputs since the last record, at most kTracedTail; they are the next ones in TraceStep::outputs
  std::int64_t num_cached_tokens = -1, num_external_computed_tokens = 0;
  std::optional<TokenId> stop_token{};
};
static_assert(sizeof(TracedRequest) <= 64);

// A prefix cache lookup at an admission.
struct TracedLookup {
  Event event;
  std::string job;
  std::uint32_t num_prompt_tokens = 0;
};

// The slots of the nearest tier below the KV cache.
struct TracedTier {
  std::uint32_t num_free = 0, num_places = 0, num_held = 0;
};

struct TraceStep {
  StepId step;
  double time_s = 0.0;      // start of the step, in seconds since 1970
  bool has_queues = false;  // true in every n-th step (TraceOptions::every); other steps have only lookups and events
  std::uint32_t num_free_blocks = 0, num_blocks = 0, num_cached_blocks = 0;
  std::optional<TracedTier> tier{};     // only with `has_queues`
  std::vector<TracedFacts> facts;       // new facts, which `requests` refer to
  std::vector<TracedRequest> requests;  // in the order of the queues
  std::vector<TokenId> outputs;
  std::vector<TracedLookup> lookups;
  std::vector<Event> events_before, events;                                  // events since the previous plan; events of this plan
  std::vector<std::pair<RequestId, std::uint32_t>> fresh, resumed, running;  // scheduled requests and token counts, in the plan's order
  std::vector<RequestId> preempted;
  std::vector<std::uint32_t> num_common_prefix_blocks;  // per cache group; zeros if not counted

  // Removes the data, but keeps the allocated memory.
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
