#pragma once
// The end of requests, by a stop, from outside, or by a failed load.
//
//   any live state -> finished, known     _free_request; a connector, a load under way or a pin keeps the blocks (ended_requests.h)
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/schedule/moves/swap.h"
#include "core/schedule/requests/encoder_inputs.h"
#include "core/schedule/requests/ended_requests.h"
#include "core/schedule/requests/forks.h"
#include "core/schedule/requests/foundation.h"
#include "core/schedule/requests/policy.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/slots.h"

namespace quire {

// Called by the facade (an end from outside), by the results (a stop) and by failed loads, on the core's thread. It never destroys a
// request: plans that are under way may name it.
class Ending {
 public:
  Ending(const Foundation& base, Slots& slots, EndedRequests& ended, Policy& policy, Forks& forks, EncoderScheduler& encoder, Swap& swap)
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

  // None is finished; each once.
  void finish(std::span<Request* const> requests, RequestStatus status);
  // _free_request: it is in no queue, and its status is a finished one.
  void end(Request& request);

  // finished_req_ids: ended since the last plan, each once.
  [[nodiscard]] std::span<const RequestId> finished() const { return finished_; }
  void forget_finished() { finished_.clear(); }
  // Client and request, with include_finished_set; whoever reports them takes them out.
  [[nodiscard]] std::vector<std::pair<std::uint32_t, RequestId>>& by_client() { return by_client_; }

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
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
  // Told to the worker with the next plan, which is why they stay here and not with the outcome.
  std::vector<RequestId> finished_;
  std::vector<std::pair<std::uint32_t, RequestId>> by_client_;
};

}  // namespace quire
