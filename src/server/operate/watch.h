#pragma once
// GET /v1/watch: the blocks of the KV cache and what requests wait for, for a page that polls several times per second (docs/dashboard.md).
// Calls the engine only when a client polls, and at most four times per second for all clients together. An answer contains the changes
// since the frame that the client has (`since`). Frames are not queued: a client that polls rarely misses some.
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "quire/base/error.h"
#include "quire/watch.h"
#include "server/api/routes.h"

namespace quire {

// Returns the blocks with `changed` above `since`, in the format of docs/dashboard.md. Each run of equal neighbouring blocks has seven
// numbers: blocks skipped, blocks in the run, flags, holders, hits, owner + 1, and tenths of a second since the last use + 1. In the last
// two numbers, 0 means none or unknown. Each byte has 7 bits of a number; its highest bit is set if more bytes follow.
[[nodiscard]] std::string changed_blocks(const std::vector<WatchedBlock>& blocks, const std::vector<std::uint32_t>& changed,
                                         std::uint32_t since, double now_s);

// Used on the server's thread only.
class WatchRoute {
 public:
  static constexpr std::chrono::milliseconds kInterval{250};  // between two calls of the engine
  static constexpr std::size_t kMaxWaitingClients = 64;       // clients that wait for a frame

  explicit WatchRoute(Serving& serving);

  [[nodiscard]] Reply handle(const HttpRequest& request, const Wake& wake);

 private:
  struct Waiting {
    std::uint32_t since = 0;
    std::shared_ptr<PendingReply> reply;
    Wake wake;
  };

  // Returns the frame that the client sent in `since`. Returns 0 if the client has no frame of this run.
  [[nodiscard]] Result<std::uint32_t> since_of(const HttpRequest& request) const;
  void request_frame();
  void take(Result<std::shared_ptr<WatchFrame>> answer);
  void compare();
  [[nodiscard]] std::string write_head() const;
  [[nodiscard]] Reply answer(std::uint32_t since);

  Serving* serving_;
  std::uint64_t first_frame_;                         // public number of frame 0; later runs use larger numbers
  std::uint32_t frame_ = 0;                           // number of the newest frame in this run; 0: no frame yet
  std::chrono::steady_clock::time_point frame_time_;  // time of the newest frame
  std::shared_ptr<WatchFrame> newest_, spare_;        // the newest frame; memory for the next one, which the engine holds during a call
  std::vector<std::uint32_t> changed_;                // per block: the last frame in which it changed
  std::string head_;                                  // JSON of the newest frame, except its blocks
  std::uint32_t written_since_ = 0;                   // the `since` that `changes_` is written for
  std::string changes_;                               // JSON of the newest frame's blocks; empty: not written yet
  std::vector<Waiting> waiting_;
};

}  // namespace quire
