#pragma once
// Differences between the policies other than the order of the queues (request_queue.h): what happens before a step, which request is
// preempted, and whether the blocks of a finished request are kept. With several tenants, tenant_turns.h first chooses a request to
// preempt.
//
//                 before a step         preempted request                                     blocks of a finished turn
//   fcfs          -                     the one admitted last                                 are freed
//   priority      -                     the one with the largest (priority, arrival time)     are freed
//   continuum     expired pins end      the last one without a pinned job, or the last one    are pinned until a time
#include <optional>
#include <vector>

#include "core/agent/pin_list.h"
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/ended_requests.h"
#include "core/schedule/requests/jobs.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/request_table.h"

namespace quire {

// Called on the core's thread by step.cpp, when requests end, and by code that needs blocks. Uses the time of the context, so that equal
// calls produce equal pins.
class Policy {
 public:
  Policy(Context& context, RequestTable& table, Jobs& jobs, EndedRequests& ended)
      : context_(context), table_(table), jobs_(jobs), ended_(ended) {}

  void before_step();
  // Returns the request to preempt. `running` must not be empty.
  [[nodiscard]] std::vector<Request*>::iterator find_victim(std::vector<Request*>& running) const;
  // Returns until when the blocks of a request that ends now are kept, in seconds, or nullopt if they are freed.
  std::optional<double> on_finish(const Request& request);

  // Pins the request's blocks until `expiry`. Ends the job's earlier pin.
  void pin(Request& request, double expiry);
  bool end_oldest_pin();  // returns false if no pin exists, or if pins may not be ended early
  void end_pins();        // ends all pins

 private:
  void unpin(const Pin& pin, EventCause cause);

  Context& context_;
  RequestTable& table_;
  Jobs& jobs_;
  EndedRequests& ended_;
};

}  // namespace quire
