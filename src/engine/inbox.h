#pragma once
// Where client threads meet the engine thread: a bounded queue of commands, and which requests are open.
//
// States of a request here, and who moves it:
//   queued   counts against max_num_waiting   submit
//   admitted in the batch once or more        the engine thread, at the first admission
//   ended    unknown again                    the engine thread, or a client's finish()
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <unordered_map>
#include <variant>
#include <vector>

#include "quire/engine.h"
#include "quire/error.h"
#include "quire/ids.h"

namespace quire {

struct Submission {
  RequestId id;
  EngineRequest request;
  OutputSink* sink = nullptr;
  double arrival_s = 0.0;
};

struct Ending {
  RequestId id;
  FinishReason reason = FinishReason::abort;
};

struct ResumeOptions {};

// What an operator asks.
struct Control {
  std::variant<PauseOptions, ResumeOptions, CacheResetOptions> verb;
  ControlAnswer answer;
};

using Command = std::variant<Submission, Ending, Control>;

class Inbox {
 public:
  explicit Inbox(std::uint32_t max_num_waiting) : max_num_waiting_(max_num_waiting) {}

  // Client threads. Gives the request its id. Errors: overloaded, shutting_down.
  Result<RequestId> submit(EngineRequest request, OutputSink& sink, double arrival_s);
  // Client threads. At most one ending per request is ever queued.
  void finish(RequestId id, FinishReason reason);
  // Client threads. Once closed it is answered here.
  void control(Control control);

  // The engine thread: all commands so far, in order, into `commands`; waits for one, or for close(), if `wait`.
  void take(std::vector<Command>& commands, bool wait);
  void admitted(std::span<const RequestId> ids);
  void ended(std::span<const RequestId> ids);

  // No submissions from now on.
  void close();
  // Wakes wait_until_empty() when no request is open.
  bool wait_until_empty(double timeout_s);
  // The engine thread is asked to end what is left.
  void abort_rest();

  struct Phase {
    bool closed = false;
    bool aborting = false;
  };
  [[nodiscard]] Phase phase() const;

 private:
  void forget(RequestId id);

  const std::uint32_t max_num_waiting_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;   // the engine thread
  std::condition_variable empty_;  // stop()
  std::vector<Command> commands_;
  struct Open {
    bool queued = true;
    bool ending = false;
  };
  std::unordered_map<RequestId, Open> open_;
  std::uint32_t num_queued_ = 0;
  std::uint64_t next_id_ = 0;
  Phase phase_;
};

}  // namespace quire
