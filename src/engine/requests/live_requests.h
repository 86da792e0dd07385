#pragma once
// The requests that clients wait for, from the step that takes a request to its last output. Belongs to the engine thread. The other parts
// of this folder that move requests (forks, sessions, searches) use this table, and keep only their additional data.
//
// States of a request here, and the function that moves it:
//   live      known to the core; or expected (live_forks.h), or an answer of a search (live_searches.h)   make
//   ended     its last output is made; a plan still refers to it                                          end
//   gone      forgotten                              forget: the core has retired it, or no plan refers to it
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/adapters/live_adapters.h"
#include "engine/requests/grammars.h"
#include "engine/requests/inbox.h"
#include "engine/requests/live_encoder_inputs.h"
#include "engine/requests/outbox.h"
#include "engine/requests/tool_names.h"
#include "engine/stats/engine_counts.h"
#include "quire/base/clock.h"
#include "quire/base/sampling.h"
#include "quire/core.h"

namespace quire {

// Returns whether all rows of the prompt must be computed. As in vLLM, only pooling of the last row works with tokens from the prefix
// cache.
[[nodiscard]] inline bool needs_all_rows(const SamplingParams& sampling) {
  return sampling.prompt_logprobs.has_value() || sampling.routed_experts || sampling.pooling.kind != PoolingKind::last;
}

// Additional data of a session (live_sessions.h).
struct LiveSession {
  std::deque<std::vector<TokenId>> inputs{};  // inputs that are not taken yet; an empty last input ends the session
  std::size_t num_tokens = 0;                 // number of the session's tokens that its client knows
  bool waits = false;                         // waits for the next input; outputs that still arrive are from a step that started too early
  std::uint64_t waits_until_result = 0;       // number of results after which no step in flight includes the session
};

// A request that a client waits for, or an ended request to which a plan still refers. All its outputs go to its sink.
struct LiveRequest {
  SamplingParams sampling;
  OutputSink* sink = nullptr;
  std::uint32_t num_prompt_tokens = 0;
  std::uint32_t num_cached_tokens = 0;
  bool ended = false;
  bool pooling = false;
  bool is_admitted = false;           // a beam was admitted; set in the first request of a search
  bool runs = false;                  // counted as running with its adapter
  std::vector<RequestId> siblings{};  // requests to be forked from this request
  std::optional<RequestId> leader{};  // the request from which this one will be forked; the core does not have this one yet
  std::optional<RequestId> search{};  // the search whose answer this is; the core has only the search's beams
  // Log probabilities of each prompt token except the first, if requested and not delivered yet. Shared with requests that are forked from
  // this one.
  std::shared_ptr<std::vector<PositionLogprobs>> prompt_logprobs{};
  std::shared_ptr<std::vector<std::uint16_t>> prompt_experts{};  // experts of the prompt so far; shared in the same way
  std::shared_ptr<const StructuredOutput> structured_output{};   // may be null
  SharedLease adapter{};                                         // from LiveAdapters::hold(); null: the base model
  std::shared_ptr<const RequestInputs> inputs{};                 // from LiveEncoderInputs::hold(); null: no encoder input
  std::unique_ptr<LiveSession> session{};                        // null: not a session
  std::string name{};                                            // EngineRequest::name
  double arrival_s = 0.0;
  double waited_s = 0.0;       // until its first admission
  double last_token_s = -1.0;  // negative: no token yet
};

// Allocates the log probabilities and experts of the prompt that the sampling parameters request.
void allocate_prompt_outputs(LiveRequest& live);

class LiveRequests {
 public:
  struct Options {
    std::vector<TokenId> eos_ids;
    std::uint64_t seed = 0;                                  // seeds requests that give no seed
    std::shared_ptr<const Clock> clock;                      // never null
    std::shared_ptr<ToolNames> tools;                        // also the core's ToolNamer; never null
    std::shared_ptr<Grammars> grammars;                      // also the core's Grammar; null: no structured output
    std::shared_ptr<LiveAdapters> adapters = {};             // the worker finds adapters here; null: no adapters are served
    std::shared_ptr<LiveEncoderInputs> encoder_inputs = {};  // the worker finds encoder inputs here; null: there is no encoder
  };
  LiveRequests(Core& core, Options options);

  // Adds request `number` of the submission, where 0 is the first. An id is used only once.
  LiveRequest& make(RequestId id, const Submission& submission, std::uint32_t number);
  // Adds an empty entry for a child.
  LiveRequest& make_empty(RequestId id) { return requests_[id]; }
  // Returns the request. Stops the program if the id is not known.
  [[nodiscard]] LiveRequest& at(RequestId id) { return requests_.at(id); }
  // Returns the request; null if the id is not known.
  [[nodiscard]] LiveRequest* find(RequestId id);
  // Returns the request; null if the id is not known or the request has ended.
  [[nodiscard]] LiveRequest* find_open(RequestId id);
  void forget(RequestId id) { requests_.erase(id); }
  [[nodiscard]] bool is_empty() const { return requests_.empty(); }
  // Returns the ids of the requests that have not ended, in ascending order.
  [[nodiscard]] std::vector<RequestId> open_ids() const;

  [[nodiscard]] double now_s() const { return options_.clock->now_s(); }
  [[nodiscard]] const std::vector<TokenId>& eos_ids() const { return options_.eos_ids; }
  // Returns the grammars; null if structured output is not possible.
  [[nodiscard]] Grammars* grammars() const { return options_.grammars.get(); }
  // Returns the encoder inputs; null if the model has no encoder.
  [[nodiscard]] LiveEncoderInputs* encoder_inputs() const { return options_.encoder_inputs.get(); }
  // Lets a child use the encoder inputs of its parent. The parent must be known.
  void share_inputs(RequestId parent, RequestId id, LiveRequest& child);
  // Returns the seed for a request that sets none.
  [[nodiscard]] std::uint64_t seed_of(RequestId id) const;

  // Returns the core's form of the request, without the prompt and its properties.
  [[nodiscard]] NewRequest request_of(RequestId id, const LiveRequest& live) const;
  // Adds a request to the core. The core must accept it, because the request was validated before.
  void add_to_core(const NewRequest& request, const LiveRequest& live);

  void send(const LiveRequest& live, RequestOutput output) { outbox_.send(live.sink, std::move(output)); }
  // Sends the last output of a request, with the reason for its end.
  void end(RequestId id, LiveRequest& live, FinishReason reason, std::string error = {}, std::optional<Error> refusal = std::nullopt);
  // Records that the last output of a request was sent.
  void note_end(RequestId id, LiveRequest& live, FinishReason reason);
  // Ends a request here and in the core. Forgets the request if no plan refers to it. Returns the core's answer.
  FinishEffect finish(RequestId id, LiveRequest& live, FinishReason reason, std::string error = {},
                      std::optional<Error> refusal = std::nullopt);
  // Counts new tokens of a request in the statistics.
  void note_tokens(RequestId id, LiveRequest& live, std::size_t num_tokens, double now_s);
  // Records the first admission of a request.
  void note_admission(RequestId id);
  // Counts a new request for its adapter, if it has one.
  void note_adapter(const LiveRequest& live);

  void deliver() { outbox_.deliver(); }
  // Return the requests that were first admitted, got their first token, or ended, since the last clear_changes().
  [[nodiscard]] std::span<const RequestId> admitted() const { return admitted_; }
  [[nodiscard]] std::span<const RequestId> prefilled() const { return prefilled_; }
  [[nodiscard]] std::span<const RequestId> ended() const { return ended_; }
  void clear_changes();
  [[nodiscard]] EngineCounts& counts() { return counts_; }

 private:
  Core& core_;
  const Options options_;
  // Live requests, ended requests that are not retired yet, and expected requests that the core does not have.
  std::unordered_map<RequestId, LiveRequest> requests_;
  Outbox outbox_;
  std::vector<RequestId> admitted_, prefilled_, ended_;
  EngineCounts counts_;
};

}  // namespace quire
