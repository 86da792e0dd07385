#pragma once
// GET /v1/watch: what is in the KV cache and who waits for what, for a page that asks a few times a second (docs/dashboard.md). However
// many watch, and however often they ask, the engine is asked four times a second at most, and never by itself: where nobody asks, nothing
// is done. An answer has what has changed since the frame that the client has (`since`), whichever that is, so who asks seldom misses
// frames and nothing is queued for him.
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

// The blocks whose `changed` is above `since`, as docs/dashboard.md has them: for each run of equal neighbours numbers of 7 bits a byte
// (the highest bit: more follow) for blocks passed over, blocks in the run, flags, holders, hits, owner + 1, tenths of a second since the
// last use + 1; 0 of these two: nobody, not known.
[[nodiscard]] std::string changed_blocks(const std::vector<WatchedBlock>& blocks, const std::vector<std::uint32_t>& changed,
                                         std::uint32_t since, double now_s);

// Server's thread.
class Watching {
 public:
  static constexpr std::chrono::milliseconds kInterval{250};  // from look to look
  static constexpr std::size_t kMaxAsked = 64;                // who wait for a look

  explicit Watching(Serving& serving);

  [[nodiscard]] Reply handle(const HttpRequest& request, const Wake& wake);

 private:
  struct Waiting {
    std::uint32_t since = 0;
    std::shared_ptr<PendingReply> reply;
    Wake wake;
  };

  // Of a client's `since`; 0: it has nothing of this run.
  [[nodiscard]] Result<std::uint32_t> since_of(const HttpRequest& request) const;
  void look();
  void take(Result<std::shared_ptr<WatchFrame>> answer);
  void compare();
  [[nodiscard]] std::string write_head() const;
  [[nodiscard]] Reply answer(std::uint32_t since);

  Serving* serving_;
  std::uint64_t first_;                          // what frame 0 is called: no run has the numbers of an earlier one
  std::uint32_t frame_ = 0;                      // of this run; 0: none yet
  std::chrono::steady_clock::time_point taken_;  // when
  std::shared_ptr<WatchFrame> now_, spare_;      // the last frame; and memory for the next, which the engine has while it is asked
  std::vector<std::uint32_t> changed_;           // by block: the frame in which it changed last
  std::string head_;                             // of the last frame: all but the blocks
  std::uint32_t written_since_ = 0;              // whom changes_ is for
  std::string changes_;                          // of the last frame; empty: not written yet
  std::vector<Waiting> waiting_;
};

}  // namespace quire
