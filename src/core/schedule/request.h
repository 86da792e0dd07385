#pragma once
// One request as the scheduler sees it. Plain data: request_table owns them, the scheduler moves them.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/intrusive_list.h"
#include "core/kv/extra_keys.h"
#include "core/kv/kv_manager.h"
#include "quire/ids.h"
#include "quire/plan.h"
#include "quire/sampling.h"

namespace quire {

enum class RequestState : std::uint8_t { waiting, running, preempted, finished };

struct Request {
  RequestId id;
  RequestState state = RequestState::waiting;
  Slot slot;                              // while running
  std::uint32_t num_in_flight = 0;        // outstanding plans that name it
  std::uint32_t num_computed_tokens = 0;  // scheduled so far, also when the step is still in flight
  std::uint32_t num_prompt_tokens = 0;    // tokens[0 .. num_prompt_tokens)
  std::uint32_t min_total_tokens = 0;     // no stop before so many tokens, prompt included
  std::uint32_t max_total_tokens = 0;     // prompt and output, within max_model_len
  std::vector<TokenId> tokens;            // prompt, then outputs
  KvSequence kv;
  ListHook<Request> queue_hook;  // waiting, preempted
  std::uint64_t num_preemptions = 0;
  std::optional<std::uint32_t> num_cached_tokens;  // hit of the first admission
  std::vector<TokenId> stop_ids;                   // EOS ids, unless ignored, then the request's own
  const SamplingParams* sampling = nullptr;
  ExtraKeys extra_keys;

  [[nodiscard]] std::uint32_t num_tokens() const { return static_cast<std::uint32_t>(tokens.size()); }
  [[nodiscard]] bool queued() const { return state == RequestState::waiting || state == RequestState::preempted; }
};

using RequestQueue = IntrusiveList<Request, &Request::queue_hook>;

}  // namespace quire
