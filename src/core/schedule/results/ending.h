#pragma once
// Ends requests: by a stop, from outside, or because of a failed load.
//
//   any live state -> finished, known     _free_request; a connector, an open load or a pin keeps the blocks (ended_requests.h)
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/schedule/moves/swap.h"
#include "core/schedule/requests/encoder_inputs.h"
#include "core/schedule/requests/ended_requests.h"
#include "core/schedule/requests/forks.h"
#include "core/schedule/requests/policy.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/shared_state.h"
#include "core/schedule/requests/slots.h"

namespace quire {

// Called by the facade (an end from outside), by the results (a stop) and by failed loads, on the core's thread. It never destroys a
// request, because plans in flight may name it.
class Ending {
 public:
  Ending(const SharedState& base, Slots& slots, EndedRequests& ended, Policy& policy, Forks& forks, EncoderScheduler& encoder, Swap& swap)
      : context_(base.context),
        kv_(base.kv),
        requests_(base.requests),
        queues_(base.queues),
        slots_(slots),
        ended_(ended),
        policy_(policy),
        forks_(forks),
        encoder_(encoder),
        swap_(swap) {
    finished_.reserve(context_.config.scheduler.max_num_seqs);
  }

  // Ends requests that are not finished, each once.
  void finish(std::span<Request* const> requests, RequestStatus status);
  // _free_request: requires that the request is in no queue and has a finished status.
  void end(Request& request);

  // finished_req_ids: requests ended since the last plan, each once.
  [[nodiscard]] std::span<const RequestId> finished() const { return finished_; }
  void forget_finished() { finished_.clear(); }
  // Pairs of client and request, with include_finished_set. The code that reports them removes them.
  [[nodiscard]] std::vector<std::pair<std::uint32_t, RequestId>>& by_client() { return by_client_; }

  // Lists the members for checkpoints (schedule/checkpoint/state_archive.h). The binding must name every member to compile.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [context, kv, requests, queues, slots, ended, policy, forks, encoder, swap, finished, by_client] = self;
    form(finished, by_client);
  }

 private:
  Context& context_;
  KvCacheManager& kv_;
  Requests& requests_;
  Queues& queues_;
  Slots& slots_;
  EndedRequests& ended_;
  Policy& policy_;
  Forks& forks_;
  EncoderScheduler& encoder_;
  Swap& swap_;
  // Reported to the worker with the next plan, so they stay here and not in the outcome.
  std::vector<RequestId> finished_;
  std::vector<std::pair<std::uint32_t, RequestId>> by_client_;
};

}  // namespace quire
