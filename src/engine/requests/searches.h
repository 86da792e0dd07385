#pragma once
// Beam searches under way: each beam is a request of the core, a session that waits after each token. When all beams of a search have
// theirs, the next ones are forked from those that they go on from, each with the token that was chosen, and all before end. So nothing is
// computed twice, and nothing runs on with a token that nobody chose.
//
//   begun -> offered       its token has come, and its alternatives with it   offer
//   offered -> (none)      the search has gone on                             advance
//   offered -> given back  its blocks stood in the way of all others; the next beams are computed anew   give_back
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

// Where a search is after a step.
struct SearchStep {
  RequestId search;
  std::uint32_t width = 1;
  std::uint32_t num_tokens = 0;  // computed and sampled after in it
  // Best first; empty: it goes on. Fewer than it is wide only where a grammar leaves no more.
  std::vector<BeamSearch::Hypothesis> best{};
};

class Searches {
 public:
  static constexpr std::uint32_t kMaxWidth = 10;  // two alternatives for each, of the 20 that are given

  // `grammars` is null where none is possible, `encoder_inputs` where the model has no encoder.
  Searches(Core& core, std::vector<TokenId> eos_ids, Grammars* grammars, LiveEncoderInputs* encoder_inputs = nullptr);

  // The search has the id of the submission, and its beams have ids that no client has. `adapter` may be null.
  void add(Submission& submission, SharedLease adapter, double now_s);
  [[nodiscard]] static bool is_beam(RequestId id) { return id.value >= kFirstBeam; }
  // Of an open beam; nullopt: its search has ended.
  [[nodiscard]] std::optional<RequestId> search_of(RequestId beam) const;
  [[nodiscard]] std::uint32_t width(RequestId search) const { return searches_.at(search).width; }
  // The beam has been computed and waits.
  void offer(RequestId beam, const PositionLogprobs& sampled);
  // What of those whose beams have all been computed has become. A search with an answer is forgotten.
  [[nodiscard]] std::vector<SearchStep> advance(double now_s);
  // No block is held by beams that only wait for others. True: there were some.
  bool give_back(double now_s);
  void end(RequestId search, double now_s);
  // No plan names the beam any more.
  void retired(RequestId beam) { leaving_.erase(beam); }

 private:
  static constexpr std::uint64_t kFirstBeam = std::uint64_t{1} << 48U;
  static constexpr std::uint32_t kMaxLogprobs = 2 * kMaxWidth;

  // A request of the core, or, once it has been given back, only what it offered.
  struct Beam {
    RequestId id;
    bool in_core = true;
    std::vector<TokenLogprob> offer{};              // empty: it has not been computed yet
    std::shared_ptr<const RequestInputs> inputs{};  // as LiveEncoderInputs gave it
  };
  // From add() to end(), or to the answer.
  struct Search {
    BeamSearch beams;
    std::uint32_t width = 1;
    std::vector<Beam> open;  // in the order of the search
    std::uint32_t num_missing = 1;
    // As every beam has them.
    std::vector<TokenId> prompt;
    std::shared_ptr<const SamplingParams> sampling;
    std::shared_ptr<const RequestInputs> inputs;                // null: none
    std::shared_ptr<const StructuredOutput> structured_output;  // may be null
    SharedLease adapter;                                        // the same
    std::string name;                                           // EngineRequest::name
    double arrival_s = 0.0;
    std::int64_t priority = 0;
    std::string cache_salt;
    RequestTags tags;
  };
  // Of a beam that a plan still names, which may have begun with these.
  struct Leaving {
    SharedLease adapter;
    std::shared_ptr<const SamplingParams> sampling;
    std::shared_ptr<const RequestInputs> inputs;
  };
  // Where an id of the core belongs.
  struct Place {
    RequestId search;
    std::uint32_t beam = 0;
  };

  Beam new_beam(RequestId search, std::uint32_t beam, const std::shared_ptr<const RequestInputs>& inputs);
  void go_on(RequestId id, Search& search, double now_s);
  void go_on_from(Beam& parent, const BeamSearch::Beam& chosen, std::uint32_t beam, Search& search, double now_s);
  bool fork(const Beam& parent, const BeamSearch::Beam& chosen, RequestId child, const Search& search, double arrival_s, double now_s);
  void add_anew(std::uint32_t beam, RequestId id, const Search& search, double now_s);
  void close(Beam& beam, const Search& search, double now_s);
  // False: it had been given back.
  bool leave_core(Beam& beam, const Search& search, double now_s);
  [[nodiscard]] NewRequest request_of(RequestId id, const Search& search) const;

  Core* core_;
  Grammars* grammars_;
  LiveEncoderInputs* encoder_inputs_;
  const std::vector<TokenId> eos_ids_;
  std::map<RequestId, Search> searches_;
  std::unordered_map<RequestId, Place> beams_;
  std::vector<RequestId> ready_;                    // searches none of whose beams is missing
  std::unordered_map<RequestId, Leaving> leaving_;  // beams
  std::uint64_t next_beam_ = kFirstBeam;
};

}  // namespace quire
