#pragma once
// Where client threads meet the engine thread: a bounded queue of submissions, what else is asked, and which requests are open.
// One mutex guards it all and is held for moments only, never while a sink, an answer or the core is called: so a client never makes the
// engine wait for longer than one such call, nor does a slow step keep a client waiting.
//
// States of a request here, and who moves it:
//   submitted  in `submissions_`; counts against max_num_waiting   submit
//   taken      known to the step loop; still counts                take: so many between two steps, first come first served
//   admitted   in the batch once or more; counts no more           the engine thread, at the first admission
//   cancelled  ended before it was taken                           a client's finish(), a pause that aborts, abort_rest()
//   ended      unknown again                                       the engine thread
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "engine/adapters/adapter_lease.h"
#include "quire/base/error.h"
#include "quire/base/ids.h"
#include "quire/engine.h"
#include "quire/hash_function.h"

namespace quire {

struct RequestInputs;

// A client wants a request ended. It may have ended by then.
struct Ending {
  RequestId id;
  FinishReason reason = FinishReason::abort;
};

// A request on its way to the core, with all that its client's thread could prepare.
struct Submission {
  RequestId id;  // given by Inbox::submit
  EngineRequest request;
  std::vector<BlockHash> block_names;  // of the full blocks of the prompt
  OutputSink* sink = nullptr;
  double arrival_s = 0.0;
  SharedLease adapter{};                                  // null: the model alone
  std::shared_ptr<const RequestInputs> encoder_inputs{};  // null: it has none, or the engine thread has not seen it yet
  std::vector<Ending> ended{};                            // some of its siblings already have
  std::vector<std::vector<TokenId>> inputs{};             // of a session, after its prompt; the last is empty if no more will come

  [[nodiscard]] std::span<const std::uint8_t> names() const {
    return {reinterpret_cast<const std::uint8_t*>(block_names.data()), block_names.size() * sizeof(BlockHash)};
  }
};

// Of a submission; 0 is its first.
inline RequestId sibling(const Submission& submission, std::uint32_t i) {
  return RequestId{submission.id.value + i};
}

// Requests to be forked from one that the engine thread knows.
struct Fork {
  RequestId parent;
  RequestId first{};  // given by Inbox::fork
  EngineFork options;
  OutputSink* sink = nullptr;
  double arrival_s = 0.0;
};

// More of a session's prompt.
struct SessionTokens {
  RequestId id;
  std::vector<TokenId> tokens;  // empty: no more will come
};

struct ResumeOptions {};

// What an operator asks.
struct Control {
  std::variant<PauseOptions, ResumeOptions, CacheResetOptions> verb;
  ControlAnswer answer;
};

// Why requests of a name are where they are.
struct Question {
  std::string name;
  ExplainAnswer answer;
};

// What the cache holds and who waits, into `frame`.
struct Look {
  std::shared_ptr<WatchFrame> frame;
  WatchAnswer answer;
};

// What other sizes of the cache would have found.
struct CurveQuestion {
  std::optional<std::string> tenant;  // nullopt: of all
  CurveAnswer answer;
};

// What a request would find, which is not submitted.
struct Probe {
  Submission submission;
  ProbeAnswer answer;
};

using Command = std::variant<Ending, Fork, SessionTokens, Control, Question, CurveQuestion, Look, Probe>;

// A submission that ended before it was taken.
struct Cancelled {
  Submission submission;
  FinishReason reason = FinishReason::abort;
};

// What the engine thread has to do between two steps, in this order: of each kind so much that streams do not stand still meanwhile.
struct Intake {
  std::vector<Cancelled> cancelled;
  std::vector<Command> commands;
  std::vector<Submission> submissions;
  std::uint32_t num_left = 0;  // submissions still queued
  bool has_more = false;       // anything is still queued
  bool closed = false;         // no submission comes any more
  bool aborting = false;       // what is open is to be ended
};

class Inbox {
 public:
  // At most so many of each kind are taken at once, and submissions of at most so many prompt tokens (but one at least).
  static constexpr std::size_t kMaxTaken = 64;
  static constexpr std::size_t kMaxPromptTokens = std::size_t{1} << 18U;

  // Preempted requests wait again without counting as new ones; all that are open together are at most max_num_waiting + max_num_seqs.
  Inbox(std::uint32_t max_num_waiting, std::uint32_t max_num_seqs) : max_num_waiting_(max_num_waiting), max_num_seqs_(max_num_seqs) {}

  // Client threads. Whether submit() would refuse so many now, before what is costly is done for them.
  [[nodiscard]] Result<void> check_room(std::uint32_t num_requests = 1) const;
  // Client threads. Gives the request its id, and its siblings those after it. Errors: overloaded, shutting_down. What is accepted here is
  // never refused later.
  Result<RequestId> submit(Submission submission);
  // As submit(); answers the first id. Errors also: not_found (the parent has ended), overloaded (it has not been taken yet).
  Result<RequestId> fork(Fork fork);
  // Errors: not_found, invalid_argument (no session, or over, or longer than max_model_len with all that came before), shutting_down.
  Result<void> append(SessionTokens input, std::uint32_t max_model_len);
  // Client threads. At most one ending per request is ever queued. A submission of several is cancelled with the last of them.
  void finish(RequestId id, FinishReason reason);
  // Client threads. Once closed it is answered here.
  void control(Control control);
  // The same.
  template <class Asked>
  void ask(Asked asked) {
    Command command(std::move(asked));
    if (!put(command)) std::get<Asked>(command).answer(refuse_closed());
  }

  // The engine thread: what has come in, into `intake`. Waits `wait_s` for something, or until it comes if nullopt.
  void take(Intake& intake, std::optional<double> wait_s);
  // Any thread: take() returns even if nothing has come in.
  void wake();
  void admitted(std::span<const RequestId> ids);
  void ended(std::span<const RequestId> ids);
  // The engine thread runs no more.
  void set_done();

  // No submissions from now on.
  void close();
  // False if the engine thread is not done after so long.
  bool wait_until_done(double timeout_s);
  // The engine thread is asked to end what is left.
  void abort_rest();

 private:
  // A submission that has not been taken. Cancelled ones stay in the queue until their turn, so that the queue stays sorted by id.
  struct Queued {
    Submission submission;  // moved to cancelled_ with the flag; the id stays
    bool is_cancelled = false;
  };
  // What clients may still ask of a request. It is here from submit() or fork() to ended(), whether queued, taken or admitted.
  struct Open {
    bool waiting = true;  // not admitted yet
    // finish() was called: only the first call counts.
    bool ending = false;
    bool is_session = false;
    bool takes_input = false;    // a session that has not been told its end
    std::size_t num_tokens = 0;  // of a session: that it has been given
  };
  [[nodiscard]] static std::unexpected<Error> refuse_closed();
  // Where it is open, and else false.
  [[nodiscard]] bool put(Command& command);
  // The following are called with mutex_ held.
  [[nodiscard]] Result<void> room(std::uint32_t num_requests) const;
  RequestId open(std::uint32_t num_requests);
  Queued* queued(RequestId id);
  void cancel(Queued& queued, FinishReason reason);
  void end_queued(Queued& queued, Ending ending);
  void cancel_all();
  void take_submissions(std::vector<Submission>& taken);

  const std::uint32_t max_num_waiting_;
  const std::uint32_t max_num_seqs_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;    // the engine thread
  std::condition_variable over_;    // stop()
  std::deque<Queued> submissions_;  // by rising id
  std::uint32_t num_queued_ = 0;    // of these, not cancelled
  std::deque<Cancelled> cancelled_;
  std::deque<Command> commands_;
  std::unordered_map<RequestId, Open> open_;
  // Of open_, those with `waiting`.
  std::uint32_t num_waiting_ = 0;
  // Never used again, so an id that a client keeps too long finds nothing.
  std::uint64_t next_id_ = 0;
  bool closed_ = false, aborting_ = false, done_ = false;
  bool has_news_ = false;  // the engine thread has something to take
};

}  // namespace quire
