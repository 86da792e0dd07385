#pragma once
// Where the policies differ beside the order of the queues (request_queue.h): what happens before a step, who gives way, and whether the
// blocks of a finished request stay.
//
//                 before a step         who gives way                                    blocks of a finished turn
//   fcfs          -                     the request admitted last                        are freed
//   priority      -                     the largest (priority, arrival time)             are freed
//   continuum     expired pins end      the last one whose job is not pinned, or the last  stay for a while: running -> finished, pinned
#include <optional>
#include <vector>

#include "core/agent/pin_list.h"
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/ended_requests.h"
#include "core/schedule/requests/jobs.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/request_table.h"

namespace quire {

// Called by the frame of a step, the ends of requests and whoever needs blocks, on the core's thread. The time is the context's: equal
// calls give equal pins.
class Policy {
 public:
  Policy(Context& context, RequestTable& table, Jobs& jobs, EndedRequests& ended)
      : context_(context), table_(table), jobs_(jobs), ended_(ended) {}

  void before_step();
  // `running` is not empty.
  [[nodiscard]] std::vector<Request*>::iterator find_victim(std::vector<Request*>& running) const;
  // Until when the blocks of a request that ends now stay, s; nullopt: they are free.
  std::optional<double> on_finish(const Request& request);

  // Instead of the job's earlier pin.
  void pin(Request& request, double expiry);
  bool end_oldest_pin();  // false: there is none, or pins do not give way
  void end_pins();        // all

 private:
  void unpin(const Pin& pin, EventCause cause);

  Context& context_;
  RequestTable& table_;
  Jobs& jobs_;
  EndedRequests& ended_;
};

}  // namespace quire
