#pragma once
// Beam searches as clients see them: a search's answers are requests that only clients know (LiveRequests), and its beams requests that
// only the core knows (searches.h). Belongs to the engine thread.
#include <cstdint>
#include <optional>
#include <string>

#include "engine/requests/inbox.h"
#include "engine/requests/live_requests.h"
#include "engine/requests/searches.h"
#include "quire/core.h"

namespace quire {

class LiveSearches {
 public:
  LiveSearches(Core& core, LiveRequests& live) : live_(live), searches_(core, live.eos_ids(), live.grammars(), live.encoder_inputs()) {}

  void add(Submission& submission);
  // Of an open beam; nullopt: its search has ended, or it is no beam.
  [[nodiscard]] std::optional<RequestId> search_of(RequestId beam) const { return searches_.search_of(beam); }
  // A beam of it was admitted for the first time.
  void admit(RequestId search, const FirstAdmission& admission, double now_s);
  // A beam's token, and the alternatives to it.
  void take_offer(const RequestUpdate& update, const PositionLogprobs& sampled);
  // Searches go on whose beams have all been computed; those that are over are answered.
  void advance(double now_s);
  // No block is held by beams that only wait for others. True: there were some.
  bool give_back(double now_s) { return searches_.give_back(now_s); }
  // No plan names it any more.
  void retired(RequestId beam) { searches_.retired(beam); }
  // All its answers end.
  void end(RequestId search, FinishReason reason, const std::string& error = {}, const std::optional<Error>& refusal = {});

 private:
  void answer(RequestId id, BeamSearch::Hypothesis found);
  // A grammar left no answer for it.
  void end_unfound(RequestId id, std::size_t num_found);

  LiveRequests& live_;
  Searches searches_;
};

}  // namespace quire
