#pragma once
// Beam searches in progress. Each beam is a request of the core: a session that waits after each token. When all beams of a search have
// their token, the next beams are forked from their parents, each with its chosen token, and all parents end. Nothing is computed twice
// unless the blocks of waiting beams are released, and no request continues with a token that was not chosen.
//
// States of a beam, and the function that moves it:
//   begun -> offered       its token and the alternatives to it have come                      offer
//   offered -> (none)      the search has continued                                            advance
//   offered -> released    other requests need its blocks; the next beams are computed again   release_waiting_beams
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/adapters/adapter_lease.h"
#include "engine/requests/beam_search.h"
#include "engine/requests/grammars.h"
#include "engine/requests/inbox.h"
#include "engine/requests/live_encoder_inputs.h"
#include "quire/base/ids.h"
#include "quire/base/sampling.h"
#include "quire/core.h"

namespace quire {

// The progress that a search has made in a step.
struct SearchStep {
  RequestId search;
  std::uint32_t width = 1;
  std::uint32_t num_tokens = 0;  // number of tokens sampled in the step, one per beam
  // The hypotheses of the answer, the best first; empty: the search continues. There are fewer than `width` only if the grammar allows no
  // more.
  std::vector<BeamSearch::Hypothesis> best{};
};

class BeamSearches {
 public:
  static constexpr std::uint32_t kMaxWidth = 10;  // a beam needs 2 * width alternatives, and at most 20 are available

  // `grammars` is null if structured output is not possible. `encoder_inputs` is null if the model has no encoder.
  BeamSearches(Core& core, std::vector<TokenId> eos_ids, Grammars* grammars, LiveEncoderInputs* encoder_inputs = nullptr);

  // Adds a search under the id of the submission. The beams get ids that no client uses. `adapter` may be null.
  void add(Submission& submission, SharedLease adapter, double now_s);
  [[nodiscard]] static bool is_beam(RequestId id) { return id.value >= kFirstBeam; }
  // Returns the search of an open beam; nullopt: its search has ended.
  [[nodiscard]] std::optional<RequestId> search_of(RequestId beam) const;
  [[nodiscard]] std::uint32_t width(RequestId search) const { return searches_.at(search).width; }
  // Stores the alternatives of a beam whose token was computed and which now waits.
  void offer(RequestId beam, const PositionLogprobs& sampled);
  // Continues the searches in which all beams are computed, and returns their progress. A search that has its answer is forgotten.
  [[nodiscard]] std::vector<SearchStep> advance(double now_s);
  // Frees the blocks of beams that only wait for other beams. Returns whether there were such beams.
  bool release_waiting_beams(double now_s);
  void end(RequestId search, double now_s);
  // Forgets a beam to which no plan refers any more.
  void retired(RequestId beam) { retiring_.erase(beam); }

 private:
  static constexpr std::uint64_t kFirstBeam = std::uint64_t{1} << 48U;
  static constexpr std::uint32_t kMaxLogprobs = 2 * kMaxWidth;

  // A beam, which is a request of the core. After release_waiting_beams(), only its offer is left.
  struct Beam {
    RequestId id;
    bool in_core = true;
    std::vector<TokenLogprob> offer{};              // empty: not computed yet
    std::shared_ptr<const RequestInputs> inputs{};  // from LiveEncoderInputs::hold()
  };
  // A search, from add() until end() or its answer.
  struct Search {
    BeamSearch beams;
    std::uint32_t width = 1;
    std::vector<Beam> open;  // in the order of `beams`
    std::uint32_t num_missing = 1;
    // Properties that all beams share.
    std::vector<TokenId> prompt;
    std::shared_ptr<const SamplingParams> sampling;
    std::shared_ptr<const RequestInputs> inputs;                // null: none
    std::shared_ptr<const StructuredOutput> structured_output;  // may be null
    SharedLease adapter;                                        // may be null
    std::string name;                                           // EngineRequest::name
    double arrival_s = 0.0;
    std::int64_t priority = 0;
    std::string cache_salt;
    RequestTags tags;
  };
  // Objects of an ended beam that the worker may still use, because a plan still refers to the beam.
  struct RetiringBeam {
    SharedLease adapter;
    std::shared_ptr<const SamplingParams> sampling;
    std::shared_ptr<const RequestInputs> inputs;
  };
  // The search and the beam to which an id of the core belongs.
  struct BeamPosition {
    RequestId search;
    std::uint32_t beam = 0;
  };

  Beam new_beam(RequestId search, std::uint32_t beam, const std::shared_ptr<const RequestInputs>& inputs);
  void advance_search(RequestId id, Search& search, double now_s);
  void advance_beam(Beam& parent, const BeamSearch::Beam& chosen, std::uint32_t beam, Search& search, double now_s);
  bool fork(const Beam& parent, const BeamSearch::Beam& chosen, RequestId child, const Search& search, double arrival_s, double now_s);
  void add_recomputed(std::uint32_t beam, RequestId id, const Search& search, double now_s);
  void close(Beam& beam, const Search& search, double now_s);
  // Ends the beam in the core. Returns false if the beam was released before.
  bool finish_in_core(Beam& beam, const Search& search, double now_s);
  [[nodiscard]] NewRequest request_of(RequestId id, const Search& search) const;

  Core* core_;
  Grammars* grammars_;
  LiveEncoderInputs* encoder_inputs_;
  const std::vector<TokenId> eos_ids_;
  std::map<RequestId, Search> searches_;
  std::unordered_map<RequestId, BeamPosition> beams_;
  std::vector<RequestId> ready_;                          // searches in which all beams are computed
  std::unordered_map<RequestId, RetiringBeam> retiring_;  // by beam
  std::uint64_t next_beam_ = kFirstBeam;
};

}  // namespace quire
