#pragma once
// The state that the routes of all APIs use: the model and its engine, API keys, the job pool, and answers in progress.
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/json_writer.h"
#include "quire/base/cancellation_point.h"
#include "quire/server_options.h"
#include "server/answers/engine_client.h"
#include "server/http/http.h"
#include "server/http/job_pool.h"
#include "server/http/reply.h"
#include "server/http/request_log.h"
#include "server/http/server_stats.h"
#include "server/http/tenants.h"
#include "server/request/completion_request.h"
#include "server/request/prompt_fingerprint.h"
#include "server/request/request_context.h"

namespace quire {

class Completion;
struct PreparedCompletion;

// Limit for bodies that are read on the server's thread. Up to this size, reading, rendering and tokenizing cost less than passing the body
// to another thread and back.
inline constexpr std::size_t kMaxInlineBytes = 4 << 10;

// Limit in bytes for the stored fingerprints that later prompts can be compared with: some thousands of prompts.
inline constexpr std::uint64_t kMaxFingerprintBytes = 8 << 20;

// Used on the server's thread only, except for the members that can be called on any thread.
class Serving {
 public:
  // Behaves like JobPool::submit().
  using SubmitJob = std::function<bool(JobPool::Lane lane, JobPool::Job job)>;

  // All arguments must outlive this object.
  Serving(EngineClient& engine, const ServedModel& model, const ServerOptions& options, Logger& logger, SubmitJob submit_job);

  [[nodiscard]] EngineClient& engine() { return *engine_; }
  [[nodiscard]] const ServedModel& model() const { return *model_; }        // callable on any thread
  [[nodiscard]] const ServerOptions& options() const { return *options_; }  // callable on any thread
  [[nodiscard]] const ApiKeys& keys() const { return keys_; }
  [[nodiscard]] RequestLog& log() { return log_; }
  [[nodiscard]] ServerStats& stats() { return stats_; }
  [[nodiscard]] std::int64_t started_s() const { return started_s_; }

  // After this call, no new answer of the model starts.
  void drain() { draining_ = true; }
  [[nodiscard]] bool is_draining() const { return draining_; }

  // Returns the tenant of a request that has been admitted.
  [[nodiscard]] std::string tenant_of(const HttpRequest& request) const { return keys_.tenant_of(request.authorization).value(); }
  // Returns the context for reading a body. Called on any thread. `tenant` must outlive the result.
  [[nodiscard]] RequestContext context(std::string_view tenant, const CancellationPoint* cancellation = nullptr) const {
    return {*model_, *options_, tenant, {}, false, cancellation};
  }

  // Return a reply with an error or with a JSON body. Called on any thread.
  [[nodiscard]] Reply refuse(const Error& error) const;
  [[nodiscard]] static Reply json_reply(std::string body);
  // Returns a reply whose body is the JSON object with the fields that `write(json)` writes.
  template <std::invocable<JsonWriter&> Write>
  [[nodiscard]] static Reply json_reply(Write write) {
    return json_reply(json_object(write));
  }
  // Adds the names of the request's ignored fields to a header of the reply and to the log.
  [[nodiscard]] Reply with_ignored_fields(Reply reply, const std::string& id, const std::vector<std::string>& ignored);
  // Returns the reply of `handler`. If `handler` throws, logs the exception and returns status 500.
  [[nodiscard]] Reply guard(const std::string& id, const std::function<Reply()>& handler);
  // Runs `work` in the job pool, then `done` on the server's thread. Returns false without running either if the lane is full or the client
  // has too many jobs in it. `client` is HttpRequest::client; the jobs of clients take turns.
  [[nodiscard]] bool submit_job(JobPool::Lane lane, const std::string& client, const JobPool::Function& work, JobPool::Function done) {
    return submit_job_(lane,
                       {.work = [work](const CancellationPoint& /*cancellation*/) { work(); }, .done = std::move(done), .client = client});
  }

  // The work that remains for the server's thread after a body has been read.
  using RemainingWork = std::function<Reply(const Wake& wake)>;
  // Reads a body. Long work must call `cancellation` regularly, which may throw JobStopped; read_body() handles the exception.
  using Read = std::function<RemainingWork(std::string body, const CancellationPoint& cancellation)>;
  // Calls `read` on this thread if there are few bytes to read, otherwise in the job pool. Callers pass `num_bytes` if more than the body
  // is read.
  [[nodiscard]] Reply read_body(HttpRequest& request, std::size_t num_bytes, const Wake& wake, Read read);
  [[nodiscard]] Reply read_body(HttpRequest& request, const Wake& wake, Read read) {
    const std::size_t num_bytes = request.body.size();
    return read_body(request, num_bytes, wake, std::move(read));
  }
  // Returns the JSON of the whole answer to the body.
  using Answer = std::function<Result<std::string>(std::string body, const CancellationPoint& cancellation)>;
  [[nodiscard]] Reply answer_body(HttpRequest& request, std::size_t num_bytes, const Wake& wake, Answer answer);
  [[nodiscard]] Reply answer_body(HttpRequest& request, const Wake& wake, Answer answer) {
    const std::size_t num_bytes = request.body.size();
    return answer_body(request, num_bytes, wake, std::move(answer));
  }
  // Returns an error as the remaining work. Called on any thread.
  [[nodiscard]] RemainingWork refusal(const Error& error) const;
  [[nodiscard]] Error read_timeout_error() const;

  // The JSON of an answer that needs no request to the engine, and the names of ignored fields.
  struct DirectAnswer {
    std::string json;
    std::vector<std::string> ignored{};
  };
  // Reads a body into a CompletionRequest with a shape, or answers it. complete() then starts the request, or refuses it while the server
  // drains.
  using ReadCompletion =
      std::function<Result<std::variant<CompletionRequest, DirectAnswer>>(std::string body, const RequestContext& context)>;
  // Starts the prepared completion. The default is start_now(). `answer_id` is HttpRequest::answer_id().
  using Start = Reply (*)(Serving& serving, PreparedCompletion prepared, const std::string& answer_id, const Wake& wake);
  // Reads, prepares and starts a completion. `computes`: the request needs the weights of the adapter that it names.
  [[nodiscard]] Reply complete(HttpRequest& request, std::size_t num_bytes, const Wake& wake, ReadCompletion read, Start begin = start_now,
                               bool computes = true);
  [[nodiscard]] Reply complete(HttpRequest& request, const Wake& wake, ReadCompletion read, Start begin = start_now, bool computes = true) {
    const std::size_t num_bytes = request.body.size();
    return complete(request, num_bytes, wake, std::move(read), begin, computes);
  }
  [[nodiscard]] Reply start(PreparedCompletion prepared, const std::string& answer_id, const Wake& wake);

  // Calls `with_lease` with a lease of the adapter, or with a null lease if `adapter` is empty. Calls it immediately if the weights are in
  // memory, otherwise after the job pool has read them.
  using Lease = std::shared_ptr<const AdapterLease>;
  using WithLease = std::function<Reply(const Lease& lease)>;
  [[nodiscard]] Reply with_adapter(const std::string& adapter, const std::string& request_id, const Wake& wake, WithLease with_lease);
  // Runs `work` in the disk lane, then `reply` on the server's thread. The result of `reply` is the reply to the request. `what` names the
  // work in an error.
  [[nodiscard]] Reply run_disk_job(const std::string& request_id, const Wake& wake, const char* what, std::function<void()> work,
                                   std::function<Reply()> reply);

  // Returns an answer in progress of this tenant. `id` is the answer's id, or the client's X-Request-Id with the prefix of the API, which
  // finds the newest such answer. Errors: `not_found`.
  [[nodiscard]] Result<std::shared_ptr<Completion>> find(const std::string& tenant, const std::string& id) const;
  struct AnswerInProgress {
    std::string id;
    std::shared_ptr<const Completion> completion;
  };
  // Returns the unfinished answers of all tenants, ordered by tenant and id.
  [[nodiscard]] std::vector<AnswerInProgress> answers_in_progress() const;
  void remember(const std::string& tenant, const std::string& id, const std::shared_ptr<Completion>& completion);
  // Returns the id of the answer that find() returns for `id`, or `id` itself if find() returns none.
  [[nodiscard]] std::string full_id(const std::string& tenant, const std::string& id) const;

 private:
  [[nodiscard]] RemainingWork answer_directly(DirectAnswer answer, const std::string& id);
  // Compares the prompt with an earlier prompt if the request asks for it, and stores the prompt's fingerprint for later comparisons.
  void compare_prompt(CompletionRequest& request, PromptFingerprint fingerprint, const std::string& id);
  static Reply start_now(Serving& serving, PreparedCompletion prepared, const std::string& answer_id, const Wake& wake);

  EngineClient* engine_;
  const ServedModel* model_;
  const ServerOptions* options_;
  SubmitJob submit_job_;
  // The time when the server started, in seconds since 1970.
  std::int64_t started_s_;
  bool draining_ = false;
  struct StartedCompletion {
    std::string id;
    std::weak_ptr<Completion> completion;
  };
  // Keys are the tenant and the id of an answer, or the tenant and client_part() of the id. Expired entries are erased when the map has
  // doubled in size.
  std::map<std::pair<std::string, std::string>, StartedCompletion> completions_;
  std::size_t sweep_threshold_ = 64;
  PromptFingerprintCache fingerprints_{kMaxFingerprintBytes};
  ApiKeys keys_;
  RequestLog log_;
  // The server's counters for /metrics.
  ServerStats stats_;
};

// Returns the seconds since 1970 by the system clock.
[[nodiscard]] std::int64_t unix_now_s();

}  // namespace quire
