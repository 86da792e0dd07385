#pragma once
// Requests whose images are being encoded. The core does not have them yet, so that requests after them need not wait. Belongs to the
// engine thread.
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/requests/inbox.h"
#include "quire/core.h"
#include "runtime/worker/worker_base.h"

namespace quire {

class LiveImages {
 public:
  LiveImages(Core& core, WorkerBase& worker) : core_(core), worker_(worker) {}

  // Passes the images to the worker. Returns true if the request must wait for them; the submission was then moved from. Returns false if
  // all images are already encoded, or their tokens are in the prefix cache.
  bool take(Submission& submission);
  // A waiting request, and the commands for it that have arrived since. The forks are made after the request is added, and then the inputs
  // are appended.
  struct Waiting {
    Submission submission;
    std::vector<Fork> forks{};
    std::vector<SessionTokens> inputs{};  // inputs of sessions that are children
    std::vector<std::shared_ptr<EncodedImage>> needed{};

    [[nodiscard]] std::vector<RequestId> ids() const;  // ids of the submission's requests, and of the children to fork
  };
  // Returns the requests that no longer wait, in the order of arrival.
  std::vector<Waiting> take_ready();
  [[nodiscard]] bool is_empty() const { return waiting_.empty(); }
  [[nodiscard]] std::uint32_t num_waiting() const;

  // Store a command for a waiting request. Return false if the parent or the session is not waiting here.
  bool fork(const Fork& fork);
  bool append(SessionTokens& input);
  // Ends a request. Returns:
  // - `unknown`: no request with this id waits here;
  // - `one`: other requests of the submission still wait;
  // - `all`: the request was the last of its submission and of the children to fork; the submission was moved to `whole`.
  enum class Ended : std::uint8_t { unknown, one, all };
  Ended end(RequestId id, FinishReason reason, Waiting& whole);
  // Returns the ids of all waiting requests.
  [[nodiscard]] std::vector<RequestId> ids() const;

 private:
  [[nodiscard]] std::uint32_t num_cached_tokens(const Submission& submission) const;
  std::deque<Waiting>::iterator find(RequestId id);  // returns the entry with this id

  Core& core_;
  WorkerBase& worker_;
  std::deque<Waiting> waiting_;
};

}  // namespace quire
