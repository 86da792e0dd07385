#pragma once
// What became of connections, counted for /metrics.
#include <cstdint>
#include <map>

namespace quire {

// Kept by the server's thread.
struct ServerStats {
  std::uint64_t num_connections = 0;  // open now
  std::uint64_t connections_total = 0;
  std::uint64_t connections_refused_total = 0;   // all of max_connections were busy, or no descriptor was left
  std::uint64_t connections_given_up_total = 0;  // idle or half-heard, closed to make room
  std::uint64_t clients_gone_total = 0;          // left before their answer was complete
  std::uint64_t clients_stalled_total = 0;       // did not read their stream
  std::uint64_t log_lines_dropped_total = 0;     // nobody read them
  std::uint64_t spans_sent_total = 0;
  std::uint64_t spans_dropped_total = 0;              // the collector did not take them
  std::map<unsigned, std::uint64_t> responses_total;  // by HTTP status
};

}  // namespace quire
