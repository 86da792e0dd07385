#pragma once
// Requests whose pictures are being encoded: the core does not know them yet, so nobody behind them waits. Belongs to the engine thread.
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/requests/inbox.h"
#include "quire/core.h"
#include "runtime/worker/worker_base.h"

namespace quire {

class LivePictures {
 public:
  LivePictures(Core& core, WorkerBase& worker) : core_(core), worker_(worker) {}

  // The worker has its pictures from now on. Whether the request is to wait for them, and was taken: not where they are encoded, or the
  // prefix cache has the tokens behind them.
  bool take(Submission& submission);
  // One that waits, and what has been asked of it since, to be done behind it in this order.
  struct Waiting {
    Submission submission;
    std::vector<Fork> forks{};
    std::vector<SessionTokens> inputs{};  // of these
    std::vector<std::shared_ptr<EncodedPicture>> needed{};

    [[nodiscard]] std::vector<RequestId> ids() const;  // of its siblings, and of what is to be forked
  };
  // Those that wait no more, in the order in which they came.
  std::vector<Waiting> take_ready();
  [[nodiscard]] bool is_empty() const { return waiting_.empty(); }
  [[nodiscard]] std::uint32_t num_waiting() const;

  // False: the parent, or the session, does not wait here.
  bool fork(const Fork& fork);
  bool append(SessionTokens& input);
  // One of them ends. unknown: none waits under that id; all: it was the last of `whole`, which waits no more.
  enum class Ended : std::uint8_t { unknown, one, all };
  Ended end(RequestId id, FinishReason reason, Waiting& whole);
  // Of all that wait.
  [[nodiscard]] std::vector<RequestId> ids() const;

 private:
  [[nodiscard]] std::uint32_t num_cached_tokens(const Submission& submission) const;
  std::deque<Waiting>::iterator find(RequestId id);  // whose id it is

  Core& core_;
  WorkerBase& worker_;
  std::deque<Waiting> waiting_;
};

}  // namespace quire
