#pragma once
// Counters of the server's connections and responses for /metrics.
#include <cstdint>
#include <map>

#include "server/http/body_budget.h"

namespace quire {

// Updated on the server's thread.
struct ServerStats {
  const BodyBudget* bodies = nullptr;  // the budget of all connections; may be null
  std::uint64_t num_connections = 0;   // open now
  std::uint64_t connections_total = 0;
  std::uint64_t connections_refused_total = 0;   // connections refused: all `max_connections` were busy, or no file descriptor was left
  std::uint64_t connections_given_up_total = 0;  // connections that were idle or had a partial request, closed to make room
  std::uint64_t bodies_cut_total = 0;            // bodies that arrived too slowly and were cut off to make room
  std::uint64_t clients_gone_total = 0;          // clients that disconnected before their answer was complete
  std::uint64_t clients_stalled_total = 0;       // clients that did not read their stream
  std::uint64_t log_lines_dropped_total = 0;     // log lines dropped because the log was not read fast enough
  std::uint64_t spans_sent_total = 0;
  std::uint64_t spans_dropped_total = 0;              // spans that the collector did not accept
  std::map<unsigned, std::uint64_t> responses_total;  // by HTTP status
};

}  // namespace quire
