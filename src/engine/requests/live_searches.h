#pragma once
// Connects beam searches with their clients. The answers of a search are requests that only clients know (LiveRequests), and its beams are
// requests that only the core knows (searches.h). Belongs to the engine thread.
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
  // Returns the search of an open beam; nullopt: its search has ended, or the id is not the id of a beam.
  [[nodiscard]] std::optional<RequestId> search_of(RequestId beam) const { return searches_.search_of(beam); }
  // Records that a beam of the search was first admitted.
  void admit(RequestId search, const FirstAdmission& admission, double now_s);
  // Passes the alternatives to a beam's token to the search.
  void take_offer(const RequestUpdate& update, const PositionLogprobs& sampled);
  // Continues the searches in which all beams are computed, and sends the answers of the searches that are complete.
  void advance(double now_s);
  // Frees the blocks of beams that only wait for other beams. Returns whether there were such beams.
  bool release_waiting_beams(double now_s) { return searches_.release_waiting_beams(now_s); }
  // Forgets a beam to which no plan refers any more.
  void retired(RequestId beam) { searches_.retired(beam); }
  // Ends all answers of a search.
  void end(RequestId search, FinishReason reason, const std::string& error = {}, const std::optional<Error>& refusal = {});

 private:
  void answer(RequestId id, BeamSearch::Hypothesis found);
  // Ends a request for which the search found no answer, because the grammar allows fewer answers.
  void end_unanswered(RequestId id, std::size_t num_found);

  LiveRequests& live_;
  BeamSearches searches_;
};

}  // namespace quire
