#pragma once
// Connects client threads with the engine thread: a bounded queue of submissions, other commands, and the open requests. One mutex guards
// everything. It is held for moments only, never while a sink, an answer or the core is called. So a client delays the engine by no more
// than one such call, and a slow step does not keep clients waiting.
//
// States of a request here, and the call or thread that moves it:
//   submitted  in its tenant's queue; counts as waiting           submit
//   taken      known to the step loop; counts as waiting          take: between two steps, as many as the next step can use
//   admitted   was in the batch; no longer counts as waiting      the engine thread, at the first admission
//   cancelled  ended before it was taken                          a client's finish(), a pause that aborts, abort_rest()
//   ended      unknown again                                      the engine thread
//
// Tenants take turns: take() serves the tenant with the fewest prompt tokens served, and each tenant's requests in the order of submission.
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
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

// A client's command to end a request, which may already have ended.
struct FinishCommand {
  RequestId id;
  FinishReason reason = FinishReason::abort;
};

// A request on its way to the core, with all that its client's thread could prepare.
struct Submission {
  RequestId id;  // set by Inbox::submit
  EngineRequest request;
  std::vector<BlockHash> block_keys;  // hashes of the prompt's full blocks
  OutputSink* sink = nullptr;
  double arrival_s = 0.0;
  SharedLease adapter{};                                  // null: the base model
  std::shared_ptr<const RequestInputs> encoder_inputs{};  // null: no encoder input, or the engine thread has not made it yet
  std::vector<FinishCommand> ended{};                     // siblings that have already ended
  std::vector<std::vector<TokenId>> inputs{};             // a session's inputs after its prompt; an empty last one ends the input

  [[nodiscard]] std::span<const std::uint8_t> names() const {
    return {reinterpret_cast<const std::uint8_t*>(block_keys.data()), block_keys.size() * sizeof(BlockHash)};
  }
};

// Returns the id of request `i` of a submission; 0 is the first.
inline RequestId sibling(const Submission& submission, std::uint32_t i) {
  return RequestId{submission.id.value + i};
}

// Requests to fork from a request that the engine thread knows.
struct Fork {
  RequestId parent;
  RequestId first{};  // set by Inbox::fork
  EngineFork options;
  OutputSink* sink = nullptr;
  double arrival_s = 0.0;
};

// More prompt tokens of a session.
struct SessionTokens {
  RequestId id;
  std::vector<TokenId> tokens;  // empty: no more will come
};

struct ResumeOptions {};
struct EncoderResetOptions {};

// A command of an operator.
struct Control {
  std::variant<PauseOptions, ResumeOptions, CacheResetOptions, EncoderResetOptions> verb;
  ControlCallback answer;
};

// Asks for explanations of the requests with a name.
struct ExplainQuery {
  std::string name;
  ExplainCallback answer;
};

// Asks for the cache's contents and the waiting requests, written to `frame`.
struct WatchQuery {
  std::shared_ptr<WatchFrame> frame;
  WatchCallback answer;
};

// Asks for the hit rates that other sizes of the cache would have had.
struct CurveQuery {
  std::optional<std::string> tenant;  // nullopt: all tenants
  CurveCallback answer;
};

// Asks what a request would find in the caches, without submitting it.
struct ProbeQuery {
  Submission submission;
  ProbeCallback answer;
};

using Command = std::variant<FinishCommand, Fork, SessionTokens, Control, ExplainQuery, CurveQuery, WatchQuery, ProbeQuery>;

// A submission that ended before it was taken.
struct Cancelled {
  Submission submission;
  FinishReason reason = FinishReason::abort;
};

// The engine thread's work between two steps, in this order. Each kind is bounded so that streams do not stall.
struct InboxBatch {
  std::vector<Cancelled> cancelled;
  std::vector<Command> commands;
  std::vector<Submission> submissions;
  std::uint32_t num_left = 0;  // submissions still queued
  bool has_more = false;       // anything is still queued
  bool closed = false;         // no more submissions will come
  bool aborting = false;       // open requests must be ended
};

class Inbox {
 public:
  struct Limits {
    std::uint32_t max_num_waiting = 1024;  // bound on new requests that wait
    // The bound on one tenant's new requests. EngineRequest::tags names the tenant.
    std::uint32_t max_tenant_waiting = 1024;
    // Preempted requests wait again without counting as new ones: at most max_num_waiting + max_num_seqs are open.
    std::uint32_t max_num_seqs = 128;
    std::uint32_t max_num_batched_tokens = 2048;
    // EngineOptions; 0: no limit.
    std::uint32_t max_num_queued_reqs = 0, max_num_queued_tokens = 0;
    double max_ttft_s = 0.0;
    bool shares_steps = false;  // prompts share steps evenly, so a short one overtakes long ones
  };
  // Bounds per take(). kMaxSubmissionsPerTake holds for questions, session inputs and submissions (unless the step has rows for more),
  // kMaxEndings for endings, which are cheap.
  static constexpr std::size_t kMaxSubmissionsPerTake = 64, kMaxEndings = 4096;
  // Bound on the prompt tokens of the submissions per take(), unless a step computes more. One submission is always taken.
  static constexpr std::size_t kMaxPromptTokens = std::size_t{1} << 18U;

  explicit Inbox(const Limits& limits) : limits_(limits) {}

  // Client threads. Returns the error that submit() would return now for this many requests of the tenant, without that of
  // Limits::max_ttft_s. Saves costly preparation.
  [[nodiscard]] Result<void> check_room(std::uint32_t num_requests = 1, std::string_view tenant = {}) const;
  // Client threads. Gives the request its id, and its siblings the following ids. Errors: `overloaded`, `shutting_down`, `invalid_argument`
  // (more siblings than may ever wait), `unavailable`. A request that is accepted here is never refused later.
  Result<RequestId> submit(Submission submission);
  // Client threads. Returns the first child's id. Errors: submit()'s, `not_found` (the parent has ended), and `overloaded` (the parent has
  // not been taken yet).
  Result<RequestId> fork(Fork fork);
  // Client threads. Errors: `not_found`, `invalid_argument` (not a session, its input is over, or it reaches max_model_len with all earlier
  // input), `shutting_down`.
  Result<void> append(SessionTokens input, std::uint32_t max_model_len);
  // Client threads. At most one ending per request is ever queued. A submission of several requests is cancelled when its last request
  // ends.
  void finish(RequestId id, FinishReason reason);
  // Client threads. After close() the command is answered here, with an error.
  void control(Control control);
  // Client threads. After close() the question is answered here, with an error.
  template <class Query>
  void ask(Query query) {
    Command command(std::move(query));
    if (!put(command)) std::get<Query>(command).answer(refuse_closed());
  }

  // Engine thread. Moves queued work into `intake`. Waits at most `wait_s` for work; nullopt: until there is some. The next step has rows
  // for `num_free_rows` new requests.
  void take(InboxBatch& intake, std::optional<double> wait_s, std::uint32_t num_free_rows = 0);
  // Any thread. Makes take() return even if nothing is queued.
  void wake();
  void admitted(std::span<const RequestId> ids);
  // These requests have their first token. Prompts are computed at this rate; 0: not known.
  void prefilled(std::span<const RequestId> ids, double tokens_per_s);
  // Any thread. Prompt tokens of requests without a first token.
  [[nodiscard]] std::uint64_t num_queued_tokens() const;
  void ended(std::span<const RequestId> ids);
  // Engine thread. Called when the engine thread ends.
  void set_done();

  // Refuses submissions from now on.
  void close();
  // Waits until the engine thread is done. Returns false if it is not done after `timeout_s`.
  bool wait_until_done(double timeout_s);
  // Asks the engine thread to end the remaining requests.
  void abort_rest();

 private:
  // A submission that has not been taken. Cancelled submissions stay in the queue until their turn, so that it stays sorted by id.
  struct Queued {
    Submission submission;  // moved to cancelled_ when it is cancelled; the id stays
    bool is_cancelled = false;
  };
  struct Tenant {
    std::deque<Queued> submissions;  // by rising id
    std::uint32_t num_queued = 0;    // submissions that are not cancelled
    std::uint32_t num_waiting = 0;   // requests in open_ with `waiting`
    std::uint32_t num_open = 0;      // requests in open_; a tenant without any is forgotten
    std::uint64_t served = 0;        // prompt tokens that were taken; raised to the last served tenant's value when the queue was empty
  };
  // A request that clients may still refer to: from submit() or fork() to ended(), whether queued, taken or admitted.
  struct Open {
    Tenant* tenant = nullptr;
    bool waiting = true;  // not admitted yet
    // finish() was called: only the first call counts.
    bool ending = false;
    bool is_session = false;
    bool takes_input = false;    // a session with input that has not ended
    std::size_t num_tokens = 0;  // tokens given to a session
    // Tokens of the prompt until it has its first token. Siblings compute one prompt, which the first of them counts.
    std::size_t num_prefill_tokens = 0;
  };
  [[nodiscard]] static std::unexpected<Error> refuse_closed();
  // Queues a command. Returns false if the inbox is closed.
  [[nodiscard]] bool put(Command& command);
  // The following are called with mutex_ held.
  [[nodiscard]] Result<void> room(std::uint32_t num_requests, const Tenant* tenant) const;
  [[nodiscard]] Result<void> check_ttft(std::size_t num_prompt_tokens) const;
  void note_prefilled(Open& open);
  RequestId open(std::uint32_t num_requests, Tenant& tenant);
  void note_admitted(Open& open);
  Queued* queued(RequestId id);
  void cancel(Queued& queued, FinishReason reason);
  void end_queued(Queued& queued, FinishCommand ending);
  void cancel_all();
  void take_commands(std::vector<Command>& taken);
  void take_submissions(std::vector<Submission>& taken, std::uint32_t num_free_rows);
  [[nodiscard]] Tenant& next_tenant();

  const Limits limits_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;  // the engine thread waits on it
  std::condition_variable over_;  // stop() waits on it
  std::map<std::string, Tenant, std::less<>> tenants_;
  std::uint32_t num_queued_ = 0;  // submissions of all tenants that are not cancelled
  std::uint64_t served_ = 0;      // Tenant::served of the last served tenant, before its turn
  std::deque<Cancelled> cancelled_;
  std::deque<Command> commands_;
  std::unordered_map<RequestId, Open> open_;
  // The requests in open_ with `waiting`.
  std::uint32_t num_waiting_ = 0;
  std::uint64_t num_queued_tokens_ = 0;  // Open::num_prefill_tokens of all
  double prefill_tokens_per_s_ = 0.0;
  // Ids are never reused, so a client's outdated id finds nothing.
  std::uint64_t next_id_ = 1;  // 0 means no request, in events and in explanations
  bool closed_ = false, aborting_ = false, done_ = false;
  bool has_input_ = false;  // the engine thread has something to take
};

}  // namespace quire
