#pragma once
// Ends requests: after a stop, on request of the host, or because of a failed load.
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

// Called on the core's thread by Core::finish(), by Results (a stop) and by FailedLoads. Ended requests are not destroyed here, because
// plans in flight may refer to them.
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

  // Ends requests that have not ended yet. Each request is listed once.
  void finish(std::span<Request* const> requests, RequestStatus status);
  // _free_request: requires that the request is in no queue and has a finished status.
  void end(Request& request);

  // vLLM's finished_req_ids: the requests that ended since the last plan, each once.
  [[nodiscard]] std::span<const RequestId> finished() const { return finished_; }
  void forget_finished() { finished_.clear(); }
  // Pairs of client and request, with include_finished_set. The caller that reports them removes them.
  [[nodiscard]] std::vector<std::pair<std::uint32_t, RequestId>>& by_client() { return by_client_; }

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
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
  // Reported to the worker with the next plan, so the ids are stored here and not in the outcome.
  std::vector<RequestId> finished_;
  std::vector<std::pair<std::uint32_t, RequestId>> by_client_;
};

}  // namespace quire
