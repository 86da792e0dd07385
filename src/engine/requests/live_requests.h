#pragma once
// The requests that clients wait for, from the step that takes them to their last output. Belongs to the engine thread. The other parts of
// this folder that move a request are handed this one, and keep what is theirs alone (forks, sessions, searches).
//
// States of a request here, and who moves it:
//   live      known to the core; or it is expected (forks.h), or an answer of a search (live_searches.h)   make
//   ended     its last output is made, a plan still names it                                               end
//   gone      forgotten                                                       forget: the core's `retired`, or at once if no plan names it
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

// What is made of rows of the prompt needs them computed; as in vLLM, only the last one's vector does with cached ones.
[[nodiscard]] inline bool needs_rows(const SamplingParams& sampling) {
  return sampling.prompt_logprobs.has_value() || sampling.routed_experts || sampling.pooling.kind != PoolingKind::last;
}

// What a session has besides (live_sessions.h).
struct LiveSession {
  std::deque<std::vector<TokenId>> inputs{};  // not taken yet; the last is empty if no more will come
  std::size_t num_tokens = 0;                 // that it has, as its client knows them
  bool waits = false;                         // for the next of them; what comes of it now is of a step that was begun too early
  std::uint64_t waits_until = 0;              // results: then no step is under way that it takes part in
};

// A request that a client waits for; once it has ended, one that a plan still names. All its outputs go to the sink that it came with.
struct Live {
  SamplingParams sampling;
  OutputSink* sink = nullptr;
  std::uint32_t num_prompt_tokens = 0;
  std::uint32_t num_cached_tokens = 0;
  bool ended = false;
  bool pooling = false;
  bool is_admitted = false;           // of a search, its first
  bool runs = false;                  // with its adapter, as it is counted
  std::vector<RequestId> siblings{};  // to be forked from it
  std::optional<RequestId> elder{};   // it is to be forked from this one: the core does not know it yet
  std::optional<RequestId> search{};  // it is one of this one's answers: the core knows the beams instead
  // If asked for and not given out yet: a place for each token of the prompt but the first. With those who are forked from it.
  std::shared_ptr<std::vector<PositionLogprobs>> prompt_logprobs{};
  std::shared_ptr<std::vector<std::uint16_t>> prompt_experts{};  // the same, as long as they have come
  std::shared_ptr<const StructuredOutput> structured_output{};   // may be null
  SharedLease adapter{};                                         // as LiveAdapters gave it; null: the model alone
  std::shared_ptr<const RequestInputs> inputs{};                 // as LiveEncoderInputs gave it; null: it has none
  std::unique_ptr<LiveSession> session{};                        // null: it is none
  std::string name{};                                            // EngineRequest::name
  double arrival_s = 0.0;
  double waited_s = 0.0;       // until its first admission
  double last_token_s = -1.0;  // negative: none yet
};

// As its sampling parameters ask.
void make_prompt_room(Live& live);

class LiveRequests {
 public:
  struct Options {
    std::vector<TokenId> eos_ids;
    std::uint64_t seed = 0;                                  // for requests without one of their own
    std::shared_ptr<const Clock> clock;                      // never null
    std::shared_ptr<ToolNames> tools;                        // the one that the core asks; never null
    std::shared_ptr<Grammars> grammars;                      // the same; null: no structured output
    std::shared_ptr<LiveAdapters> adapters = {};             // where the worker finds them; null: there are none
    std::shared_ptr<LiveEncoderInputs> encoder_inputs = {};  // the same
  };
  LiveRequests(Core& core, Options options);

  // One of the submission's; 0 is its first. The id is used once.
  Live& make(RequestId id, const Submission& submission, std::uint32_t number);
  // Of a child, before anything is known of it.
  Live& make_empty(RequestId id) { return requests_[id]; }
  // Stops the program if it is not known.
  [[nodiscard]] Live& at(RequestId id) { return requests_.at(id); }
  // Null: not known.
  [[nodiscard]] Live* find(RequestId id);
  // Null: not known, or ended.
  [[nodiscard]] Live* find_open(RequestId id);
  void forget(RequestId id) { requests_.erase(id); }
  [[nodiscard]] bool is_empty() const { return requests_.empty(); }
  // Those that have not ended, by rising id.
  [[nodiscard]] std::vector<RequestId> open_ids() const;

  [[nodiscard]] double now_s() const { return options_.clock->now_s(); }
  [[nodiscard]] const std::vector<TokenId>& eos_ids() const { return options_.eos_ids; }
  // Null: no structured output is possible.
  [[nodiscard]] Grammars* grammars() const { return options_.grammars.get(); }
  // Null: the model has no encoder.
  [[nodiscard]] LiveEncoderInputs* encoder_inputs() const { return options_.encoder_inputs.get(); }
  // A child shows what its parent does, which is known.
  void share_inputs(RequestId parent, RequestId id, Live& child);
  // Of a request without one of its own.
  [[nodiscard]] std::uint64_t seed_of(RequestId id) const;

  // For the core, but for the prompt and what goes with it.
  [[nodiscard]] NewRequest request_of(RequestId id, const Live& live) const;
  // What was accepted at the border is a request that the core takes.
  void add_to_core(const NewRequest& request, const Live& live);

  void send(const Live& live, RequestOutput output) { outbox_.send(live.sink, std::move(output)); }
  // Its last output, with what it has had until now.
  void end(RequestId id, Live& live, FinishReason reason, std::string error = {}, std::optional<Error> refusal = std::nullopt);
  // Its last output is made.
  void note_end(RequestId id, Live& live, FinishReason reason);
  // Ends it in the core too; it is forgotten if no plan names it. What the core answered.
  FinishEffect finish(RequestId id, Live& live, FinishReason reason, std::string error = {}, std::optional<Error> refusal = std::nullopt);
  // Tokens of it have come.
  void note_tokens(Live& live, std::size_t num_tokens, double now_s);
  // It was admitted for the first time.
  void note_admission(RequestId id);
  // It is there, and has an adapter or none.
  void note_adapter(const Live& live);

  void deliver() { outbox_.deliver(); }
  // Since the last clear_news(): requests that were admitted for the first time, and that ended.
  [[nodiscard]] std::span<const RequestId> admitted() const { return admitted_; }
  [[nodiscard]] std::span<const RequestId> ended() const { return ended_; }
  void clear_news();
  [[nodiscard]] EngineCounts& counts() { return counts_; }

 private:
  Core& core_;
  const Options options_;
  // Live, ended and not yet retired, and expected ones that the core does not know.
  std::unordered_map<RequestId, Live> requests_;
  Outbox outbox_;
  std::vector<RequestId> admitted_, ended_;
  EngineCounts counts_;
};

}  // namespace quire
