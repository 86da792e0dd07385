#pragma once
// Sends the requests of a workload to a server at their arrival times, and measures the streamed answers.
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/simulation.h"
#include "traffic/request_record.h"
#include "traffic/target.h"

namespace quire {

struct TrafficOptions {
  std::string path = "/v1/completions";
  std::uint32_t max_concurrency = 1;  // requests in progress; further requests wait before they are sent
  double timeout_s = 600.0;           // a request fails after this time
};

struct TrafficResult {
  std::vector<RequestRecord> records;  // one per request, in the workload's order
  double duration_s = 0.0;
  std::uint32_t peak_concurrency = 0;
};

struct TrafficHooks {
  std::function<std::string(std::uint32_t request)> body;  // returns the body of a request when it is sent
  std::function<void(std::size_t num_ended)> progress{};   // called at least every 100 ms; may be empty
  std::function<bool()> is_stopped{};                      // true ends the run; called at least every 100 ms; may be empty
};

// Runs on the calling thread until all requests have ended or the run is stopped. `requests` have the arrival times: `start_s` after the
// start of the run, or with `after` the time after the end of that earlier request. A failed request counts as ended and is not repeated.
TrafficResult run_traffic(const Target& target, std::span<const WorkloadRequest> requests, const TrafficOptions& options,
                          const TrafficHooks& hooks);

// Raises this process's limit of open files as far as allowed. Returns the number of connections that it may then have.
std::uint32_t available_connections();

}  // namespace quire
