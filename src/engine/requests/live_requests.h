#pragma once
// The requests that clients wait for, from the step that takes them to their last output. Belongs to the engine thread. The other parts of
// this folder that move requests (forks, sessions, searches) use this table and keep only their own data.
//
// States of a request here, and the function that moves it:
//   live      known to the core; or expected (live_forks.h), or an answer of a search (live_searches.h)   make
//   ended     its last output is made; a plan still names it                                              end
//   gone      forgotten                                 forget: the core has retired it, or immediately if no plan names it
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

// Returns whether all rows of the prompt must be computed. As in vLLM, only pooling of the last row works with cached rows.
[[nodiscard]] inline bool needs_all_rows(const SamplingParams& sampling) {
  return sampling.prompt_logprobs.has_value() || sampling.routed_experts || sampling.pooling.kind != PoolingKind::last;
}

// Additional data of a session (live_sessions.h).
struct LiveSession {
  std::deque<std::vector<TokenId>> inputs{};  // not taken yet; an empty last one ends the input
  std::size_t num_tokens = 0;                 // tokens of the session that its client knows
  bool waits = false;                         // waits for the next input; outputs that still come are from a step that started too early
  std::uint64_t waits_until_result = 0;       // number of results after which no step in flight includes the session
};

// A request that a client waits for, or an ended one that a plan still names. All its outputs go to its sink.
struct LiveRequest {
  SamplingParams sampling;
  OutputSink* sink = nullptr;
  std::uint32_t num_prompt_tokens = 0;
  std::uint32_t num_cached_tokens = 0;
  bool ended = false;
  bool pooling = false;
  bool is_admitted = false;           // a beam was admitted; set in the first request of a search
  bool runs = false;                  // counted as running with its adapter
  std::vector<RequestId> siblings{};  // to be forked from it
  std::optional<RequestId> leader{};  // the request that it will be forked from: the core does not know it yet
  std::optional<RequestId> search{};  // the search that it is an answer of: the core knows only the search's beams
  // One entry per token of the prompt except the first, if requested and not delivered yet. Shared with requests that are forked from it.
  std::shared_ptr<std::vector<PositionLogprobs>> prompt_logprobs{};
  std::shared_ptr<std::vector<std::uint16_t>> prompt_experts{};  // experts of the prompt so far; shared in the same way
  std::shared_ptr<const StructuredOutput> structured_output{};   // may be null
  SharedLease adapter{};                                         // from LiveAdapters::hold(); null: the base model
  std::shared_ptr<const RequestInputs> inputs{};                 // from LiveEncoderInputs::hold(); null: no encoder input
  std::unique_ptr<LiveSession> session{};                        // null: not a session
  std::string name{};                                            // EngineRequest::name
  double arrival_s = 0.0;
  double waited_s = 0.0;       // until its first admission
  double last_token_s = -1.0;  // negative: none yet
};

// Allocates log probabilities and experts of the prompt, as the sampling parameters request.
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

  // Adds request `number` of the submission; 0 is its first. An id is used once.
  LiveRequest& make(RequestId id, const Submission& submission, std::uint32_t number);
  // Adds an empty entry for a child.
  LiveRequest& make_empty(RequestId id) { return requests_[id]; }
  // Returns the request; stops the program if the id is not known.
  [[nodiscard]] LiveRequest& at(RequestId id) { return requests_.at(id); }
  // Returns null if the id is not known.
  [[nodiscard]] LiveRequest* find(RequestId id);
  // Returns null if the id is not known or the request has ended.
  [[nodiscard]] LiveRequest* find_open(RequestId id);
  void forget(RequestId id) { requests_.erase(id); }
  [[nodiscard]] bool is_empty() const { return requests_.empty(); }
  // Returns the requests that have not ended, by rising id.
  [[nodiscard]] std::vector<RequestId> open_ids() const;

  [[nodiscard]] double now_s() const { return options_.clock->now_s(); }
  [[nodiscard]] const std::vector<TokenId>& eos_ids() const { return options_.eos_ids; }
  // Returns null if structured output is not possible.
  [[nodiscard]] Grammars* grammars() const { return options_.grammars.get(); }
  // Returns null if the model has no encoder.
  [[nodiscard]] LiveEncoderInputs* encoder_inputs() const { return options_.encoder_inputs.get(); }
  // Gives a child the encoder inputs of its parent. The parent must be known.
  void share_inputs(RequestId parent, RequestId id, LiveRequest& child);
  // Returns the seed of a request that gives none.
  [[nodiscard]] std::uint64_t seed_of(RequestId id) const;

  // Returns the request for the core, without the prompt and its properties.
  [[nodiscard]] NewRequest request_of(RequestId id, const LiveRequest& live) const;
  // Adds a request to the core, which must accept it: the request was validated before.
  void add_to_core(const NewRequest& request, const LiveRequest& live);

  void send(const LiveRequest& live, RequestOutput output) { outbox_.send(live.sink, std::move(output)); }
  // Makes the last output of a request, with the reason of its end.
  void end(RequestId id, LiveRequest& live, FinishReason reason, std::string error = {}, std::optional<Error> refusal = std::nullopt);
  // Records that a request's last output is made.
  void note_end(RequestId id, LiveRequest& live, FinishReason reason);
  // Ends a request in the core, too, and forgets it if no plan names it. Returns the core's answer.
  FinishEffect finish(RequestId id, LiveRequest& live, FinishReason reason, std::string error = {},
                      std::optional<Error> refusal = std::nullopt);
  // Counts new tokens of a request.
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
  // Live requests, ended ones that are not retired yet, and expected ones that the core does not know.
  std::unordered_map<RequestId, LiveRequest> requests_;
  Outbox outbox_;
  std::vector<RequestId> admitted_, prefilled_, ended_;
  EngineCounts counts_;
};

}  // namespace quire
