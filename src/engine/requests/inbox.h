#pragma once
// Connects client threads with the engine thread: a bounded queue of submissions, other commands, and the open requests. One mutex guards
// all members. It is held only briefly, and never while a sink, an answer or the core is called. A client therefore delays the engine
// thread by at most one short function of this class, and a slow step does not delay clients.
//
// States of a request here, and the call or thread that moves it:
//   submitted  in its tenant's queue; counts as waiting           submit
//   taken      known to the step loop; counts as waiting          take: between two steps, as many as the next step can use
//   admitted   was in the batch; no longer counts as waiting      the engine thread, at the first admission
//   cancelled  ended before it was taken                          a client's finish(), a pause that aborts, abort_rest()
//   ended      unknown again                                      the engine thread
//
// Tenants take turns: take() serves the tenant for which the fewest prompt tokens were taken, and each tenant's requests in the order of
// submission.
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

// A client's command to end a request. The request may already have ended.
struct FinishCommand {
  RequestId id;
  FinishReason reason = FinishReason::abort;
};

// A request on its way to the core, with all data that its client's thread could prepare.
struct Submission {
  RequestId id;  // set by Inbox::submit
  EngineRequest request;
  std::vector<BlockHash> block_keys;  // hashes of the prompt's full blocks
  OutputSink* sink = nullptr;
  double arrival_s = 0.0;
  SharedLease adapter{};                                  // null: the base model
  std::shared_ptr<const RequestInputs> encoder_inputs{};  // null: no encoder input, or not created yet by the engine thread
  std::vector<FinishCommand> ended{};                     // requests of this submission that have already ended
  std::vector<std::vector<TokenId>> inputs{};             // inputs of a session after its prompt; an empty last input ends the session

  [[nodiscard]] std::span<const std::uint8_t> names() const {
    return {reinterpret_cast<const std::uint8_t*>(block_keys.data()), block_keys.size() * sizeof(BlockHash)};
  }
};

// Returns the id of request `i` of a submission; 0 is the first.
inline RequestId sibling(const Submission& submission, std::uint32_t i) {
  return RequestId{submission.id.value + i};
}

// Requests to fork from a request that the engine thread already has.
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
  std::vector<TokenId> tokens;  // empty: no more input will come
};

struct ResumeOptions {};
struct EncoderResetOptions {};

// A command of an operator.
struct Control {
  std::variant<PauseOptions, ResumeOptions, CacheResetOptions, EncoderResetOptions> verb;
  ControlCallback answer;
};

// A query for explanations of the requests with a name.
struct ExplainQuery {
  std::string name;
  ExplainCallback answer;
};

// A query for the cache's contents and the waiting requests, which are written to `frame`.
struct WatchQuery {
  std::shared_ptr<WatchFrame> frame;
  WatchCallback answer;
};

// A query for the hit rates that other sizes of the cache would have had.
struct CurveQuery {
  std::optional<std::string> tenant;  // nullopt: all tenants
  CurveCallback answer;
};

// A query for what a request would find in the caches, without submitting the request.
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

// The engine thread's work between two steps, in this order. Each kind is bounded, so that streams do not stall.
struct InboxBatch {
  std::vector<Cancelled> cancelled;
  std::vector<Command> commands;
  std::vector<Submission> submissions;
  std::uint32_t num_left = 0;  // number of submissions that are still queued
  bool has_more = false;       // some work is still queued
  bool closed = false;         // no more submissions will come
  bool aborting = false;       // open requests must be ended
};

class Inbox {
 public:
  struct Limits {
    std::uint32_t max_num_waiting = 1024;  // limit of new requests that wait
    // Limit of one tenant's new requests that wait. EngineRequest::tags names the tenant.
    std::uint32_t max_tenant_waiting = 1024;
    // Preempted requests wait again without counting as new requests, so at most max_num_waiting + max_num_seqs requests are open.
    std::uint32_t max_num_seqs = 128;
    std::uint32_t max_num_batched_tokens = 2048;
    // Limits of EngineOptions; 0: no limit.
    std::uint32_t max_num_queued_reqs = 0, max_num_queued_tokens = 0;
    double max_ttft_s = 0.0;
    bool shares_steps = false;  // prompts share steps evenly, so a short prompt overtakes long ones
  };
  // Limits per take(). kMaxSubmissionsPerTake applies to commands other than endings, and to submissions (unless the next step has rows for
  // more). kMaxEndings applies to endings, which are cheap.
  static constexpr std::size_t kMaxSubmissionsPerTake = 64, kMaxEndings = 4096;
  // Limit of the prompt tokens of the submissions per take(), unless a step computes more. At least one submission is always taken.
  static constexpr std::size_t kMaxPromptTokens = std::size_t{1} << 18U;

  explicit Inbox(const Limits& limits) : limits_(limits) {}

  // Returns the error that submit() would return now for this many requests of the tenant, except for two errors: of Limits::max_ttft_s,
  // and of background requests, which may fill only half of the queue. Avoids costly preparation of requests that would be rejected. Called
  // on client threads.
  [[nodiscard]] Result<void> check_room(std::uint32_t num_requests = 1, std::string_view tenant = {}) const;
  // Queues a submission, and assigns consecutive ids to its requests. Returns the first id. Called on client threads. Errors: `overloaded`,
  // `shutting_down`, `invalid_argument` (more requests than may ever wait), `unavailable`. An accepted request is never rejected later.
  Result<RequestId> submit(Submission submission);
  // Queues a fork and returns the first child's id. Called on client threads. Errors: the errors of submit(), `not_found` (the parent has
  // ended), and `overloaded` (the parent has not been taken yet).
  Result<RequestId> fork(Fork fork);
  // Queues an input of a session. Called on client threads. Errors: `not_found`, `invalid_argument` (not a session, its end was appended
  // before, or all its inputs together reach max_model_len), `shutting_down`.
  Result<void> append(SessionTokens input, std::uint32_t max_model_len);
  // Queues the end of a request. Called on client threads. At most one end per request is ever queued. A submission of several requests is
  // cancelled when its last request ends.
  void finish(RequestId id, FinishReason reason);
  // Queues an operator's command. Called on client threads. After close(), answers the command immediately with an error.
  void control(Control control);
  // Queues a query. Called on client threads. After close(), answers the query immediately with an error.
  template <class Query>
  void ask(Query query) {
    Command command(std::move(query));
    if (!put(command)) std::get<Query>(command).answer(refuse_closed());
  }

  // Moves queued work into `intake`. Called on the engine thread. Waits at most `wait_s` for work; nullopt: until there is work. A call
  // moves a limited number of submissions, but enough for `num_free_rows` requests (the free batch rows of the next step) if their prompts
  // are not too long.
  void take(InboxBatch& intake, std::optional<double> wait_s, std::uint32_t num_free_rows = 0);
  // Makes take() return even if nothing is queued. Called on any thread.
  void wake();
  void admitted(std::span<const RequestId> ids);
  // Records that these requests have their first token, and that prompts are computed at `tokens_per_s` (0: not known).
  void prefilled(std::span<const RequestId> ids, double tokens_per_s);
  // Returns the number of prompt tokens of requests without a first token. Called on any thread.
  [[nodiscard]] std::uint64_t num_queued_tokens() const;
  void ended(std::span<const RequestId> ids);
  // Records that the engine thread ends. Called on the engine thread.
  void set_done();

  // Makes all later submissions fail.
  void close();
  // Waits until the engine thread ends. Returns false if it has not ended after `timeout_s`.
  bool wait_until_done(double timeout_s);
  // Requests that the engine thread end the remaining requests.
  void abort_rest();

 private:
  // A submission that has not been taken. A cancelled submission stays in the queue until its turn, so that the queue stays sorted by id.
  struct Queued {
    Submission submission;  // moved to cancelled_ when the submission is cancelled; the id stays
    bool is_cancelled = false;
  };
  struct Tenant {
    std::deque<Queued> submissions;  // in ascending order of ids
    std::uint32_t num_queued = 0;    // submissions that are not cancelled
    std::uint32_t num_waiting = 0;   // requests in open_ with `waiting`
    std::uint32_t num_open = 0;      // number of requests in open_; a tenant without open requests is forgotten
    std::uint64_t served = 0;        // prompt tokens taken; raised to the last served tenant's value when the queue was empty
  };
  // A request that clients may still refer to: from submit() or fork() to ended(), whether queued, taken or admitted.
  struct Open {
    Tenant* tenant = nullptr;
    bool waiting = true;  // not admitted yet
    // finish() was called; only the first call counts.
    bool ending = false;
    bool is_session = false;
    bool is_background = false;  // RequestTags::is_background
    bool takes_input = false;    // a session whose end was not appended yet
    std::size_t num_tokens = 0;  // number of tokens that clients have passed to the session
    // Number of tokens of the prompt; 0 once the request has its first token. Requests of one submission share a prompt, which only the
    // first of them counts.
    std::size_t num_prefill_tokens = 0;
  };
  [[nodiscard]] static std::unexpected<Error> refuse_closed();
  // Queues a command. Returns false if the inbox is closed.
  [[nodiscard]] bool put(Command& command);
  // The following functions are called with mutex_ held.
  [[nodiscard]] Result<void> room(std::uint32_t num_requests, const Tenant* tenant) const;
  [[nodiscard]] Result<void> check_ttft(std::size_t num_prompt_tokens, bool is_background) const;
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
  std::condition_variable wake_;  // the engine thread waits for work on it
  std::condition_variable over_;  // stop() waits for the end of the engine thread on it
  std::map<std::string, Tenant, std::less<>> tenants_;
  std::uint32_t num_queued_ = 0;  // submissions of all tenants that are not cancelled
  std::uint64_t served_ = 0;      // Tenant::served of the tenant served last, before its turn
  std::deque<Cancelled> cancelled_;
  std::deque<Command> commands_;
  std::unordered_map<RequestId, Open> open_;
  // Number of requests in open_ with `waiting`.
  std::uint32_t num_waiting_ = 0;
  std::uint64_t num_queued_tokens_ = 0;  // sum of Open::num_prefill_tokens
  double prefill_tokens_per_s_ = 0.0;
  // Ids are never reused, so an outdated id of a client matches no request.
  std::uint64_t next_id_ = 1;  // 0 means no request, in events and in explanations
  bool closed_ = false, aborting_ = false, done_ = false;
  bool has_input_ = false;  // the engine thread has something to take
};

}  // namespace quire
