#pragma once
// The consumer's side of blocks that come from another server: a thread that asks for them, verifies each, and hands it on (peer_wire.h).
// Each request is one errand, on a connection of its own.
//
// States of an errand, and who moves it on:
//   announced  expect(): its jobs are to come                                 the caller
//   waits      all jobs have come; or release(), renew(), which have none     add()
//   under way  it has a connection                                            the thread, kMostLinks at a time
//   over       each job's `over` was called once                              the thread: served, or failed, or too late; cancel()
// Whatever becomes of it, the producer is told that its blocks may go, once, if it can be reached.
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

#include "runtime/remote/peer_link.h"
#include "runtime/remote/peer_wire.h"
#include "runtime/remote/wake_up.h"
#include "runtime/tier/block_store.h"

namespace quire {

// Where the blocks of a request lie.
struct PeerSource {
  std::string host;
  std::uint16_t port = 0;
  std::string engine_id, request_id;
};

struct PeerFetcherOptions {
  std::vector<std::byte> secret;  // empty: nobody but a server on this machine is asked
  TierFingerprint fingerprint{};
  std::uint64_t block_bytes = 0;  // of the largest that comes
  // Without a whole block, or another answer.
  double patience_s = 1.5;
  // Slower than so many bytes per second on the whole, it is as good as stalled.
  double least_bytes_per_s = 4e6;
};

// From the start.
struct PeerFetcherStats {
  std::uint64_t num_loaded = 0, bytes_loaded = 0;  // blocks
  std::uint64_t num_refused = 0, num_failed = 0;   // did not verify; did not come
  std::string problem;
};

// All but the destructor from any thread; none of them waits.
class PeerFetcher {
 public:
  explicit PeerFetcher(PeerFetcherOptions options);
  // What is not over is given up.
  ~PeerFetcher();
  PeerFetcher(const PeerFetcher&) = delete;
  PeerFetcher& operator=(const PeerFetcher&) = delete;

  // `ticket` is the caller's name for it, used once. So many blocks from the request's `first` on, whose jobs come by add().
  void expect(std::uint64_t ticket, PeerSource source, std::uint32_t first, std::uint32_t num_blocks);
  void add(std::uint64_t ticket, std::uint32_t index, TierJob job);
  void cancel(std::uint64_t ticket);
  // Its blocks are not wanted.
  void release(PeerSource source);
  // They will be.
  void renew(PeerSource source);

  [[nodiscard]] PeerFetcherStats stats() const;
  // Errands that are not over.
  [[nodiscard]] std::size_t num_open() const;

 private:
  struct Errand;
  struct Link;
  using TimePoint = std::chrono::steady_clock::time_point;

  void run();
  void begin_some();
  void wait();
  void go_on(Link& link);
  bool take_frame(Link& link, const PeerFrame& frame);
  bool take_block(Link& link, const PeerFrame& frame);
  void ask_done(Link& link);
  void lose(Link& link, std::string_view why);
  void finish(Link& link);
  void end_jobs(Errand& errand, TierOutcome outcome);
  void put(PeerKind kind, PeerSource source);
  void end_all();

  const PeerFetcherOptions options_;
  const WakeUp wake_;
  PeerSeal seal_;                             // the thread's
  std::vector<std::unique_ptr<Link>> links_;  // the same

  mutable std::mutex mutex_;
  // Guarded by mutex_, as all that follows.
  std::unordered_map<std::uint64_t, std::shared_ptr<Errand>> open_;  // that bring something, by ticket, until they are over
  std::deque<std::shared_ptr<Errand>> waiting_;
  PeerFetcherStats stats_;
  std::size_t num_notices_ = 0;  // errands that bring nothing, and are not over
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace quire
