#pragma once
// Fetches blocks from other servers: a private thread requests blocks, verifies each block and passes it on (peer_wire.h). All blocks of a
// request are one fetch, with a separate connection.
//
// States of a fetch, and what moves the fetch to the state:
//   announced  expect(): the jobs follow                                         the caller
//   waits      all jobs were added; or release() or renew(), which have no jobs  add()
//   in flight  the fetch has a connection                                        the thread, at most kMaxPeerConnections at a time
//   over       each job's `over` was called once                                 the thread (served, failed or too late), or cancel()
// When a fetch is over, the fetcher notifies the producer once that the blocks may be freed, if the producer can be reached. The destructor
// notifies no producer.
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "runtime/remote/peer_frame_stream.h"
#include "runtime/remote/peer_wire.h"
#include "runtime/remote/wake_event.h"
#include "runtime/tier/block_store.h"

namespace quire {

// Location of a request's blocks on another server.
struct PeerSource {
  std::string host;
  std::uint16_t port = 0;
  std::string engine_id, request_id;
};

struct PeerFetcherOptions {
  std::vector<std::byte> secret;  // empty: blocks are fetched only from servers on this machine
  TierFingerprint fingerprint{};
  std::uint64_t block_bytes = 0;  // bytes of the largest block
  // Longest time in seconds without a whole block or another answer.
  double timeout_s = 1.5;
  // A fetch with a lower average speed counts as stalled.
  double min_bytes_per_s = 4e6;
};

// Totals since the start.
struct PeerFetcherStats {
  std::uint64_t num_loaded = 0, bytes_loaded = 0;  // blocks and their bytes
  std::uint64_t num_refused = 0, num_failed = 0;   // corrupted blocks; blocks that did not arrive
  std::string problem;
};

// Any thread may call the functions, except the destructor. No function waits for the network.
class PeerFetcher {
 public:
  explicit PeerFetcher(PeerFetcherOptions options);
  // Cancels all open fetches.
  ~PeerFetcher();
  PeerFetcher(const PeerFetcher&) = delete;
  PeerFetcher& operator=(const PeerFetcher&) = delete;

  // Announces the blocks [first, first + num_blocks) of the request. add() passes the job of each block. `ticket` is the caller's id of the
  // fetch; each ticket is used once.
  void expect(std::uint64_t ticket, PeerSource source, std::uint32_t first, std::uint32_t num_blocks);
  void add(std::uint64_t ticket, std::uint32_t index, TierJob job);
  void cancel(std::uint64_t ticket);
  // Notifies the producer that the blocks are not needed.
  void release(PeerSource source);
  // Notifies the producer that the blocks are still needed.
  void renew(PeerSource source);

  [[nodiscard]] PeerFetcherStats stats() const;
  // Returns the number of fetches that are not over.
  [[nodiscard]] std::size_t num_open() const;

 private:
  struct PeerFetch;
  struct Link;
  using TimePoint = std::chrono::steady_clock::time_point;

  void run();
  void start_pending();
  void wait();
  void advance(Link& link);
  bool take_frame(Link& link, const PeerFrame& frame);
  bool take_block(Link& link, const PeerFrame& frame);
  void request_release(Link& link);
  void lose(Link& link, std::string_view why);
  void finish(Link& link);
  void end_jobs(PeerFetch& fetch, TierOutcome outcome);
  void put(PeerKind kind, PeerSource source);
  void end_all();

  const PeerFetcherOptions options_;
  const WakeEvent wake_;
  PeerFrameCodec codec_;                      // used only on the thread
  std::vector<std::unique_ptr<Link>> links_;  // used only on the thread

  mutable std::mutex mutex_;
  // `mutex_` guards all members below.
  std::unordered_map<std::uint64_t, std::shared_ptr<PeerFetch>> open_;  // `read` fetches that are not over, by ticket
  std::deque<std::shared_ptr<PeerFetch>> waiting_;
  PeerFetcherStats stats_;
  std::size_t num_pending_notices_ = 0;  // fetches without blocks that are not over
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace quire
