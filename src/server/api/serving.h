#pragma once
// What the routes of all APIs work with: the model and its engine, who asks, the pool in which bodies are read, the answers under way.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "quire/server_options.h"
#include "server/answers/engine_client.h"
#include "server/http/http.h"
#include "server/http/job_pool.h"
#include "server/http/reply.h"
#include "server/http/request_log.h"
#include "server/http/server_stats.h"
#include "server/http/tenants.h"
#include "server/request/completion_request.h"
#include "server/request/prompt_print.h"
#include "server/request/request_context.h"

namespace quire {

class Completion;
struct PreparedCompletion;

// Bodies up to here cost less to read, render and tokenize than to hand to another thread and back.
inline constexpr std::size_t kMaxInlineBytes = 4 << 10;

// Of prompts that clients may compare later ones with: some thousands.
inline constexpr std::uint64_t kMaxPrintBytes = 8 << 20;

// Server's thread only, but for what is said to be of any thread.
class Serving {
 public:
  // As JobPool::submit().
  using Offload = std::function<bool(JobPool::Lane lane, JobPool::Function work, JobPool::Function done)>;

  // All must outlive this.
  Serving(EngineClient& engine, const ServedModel& model, const ServerOptions& options, Logger& logger, Offload offload);

  [[nodiscard]] EngineClient& engine() { return *engine_; }
  [[nodiscard]] const ServedModel& model() const { return *model_; }        // any thread
  [[nodiscard]] const ServerOptions& options() const { return *options_; }  // any thread
  [[nodiscard]] const ApiKeys& keys() const { return keys_; }
  [[nodiscard]] RequestLog& log() { return log_; }
  [[nodiscard]] ServerStats& stats() { return stats_; }
  [[nodiscard]] std::int64_t started_s() const { return started_s_; }

  // From now on no answer of the model starts.
  void drain() { draining_ = true; }
  [[nodiscard]] bool is_draining() const { return draining_; }

  // Of a request that has been let in.
  [[nodiscard]] std::string tenant_of(const HttpRequest& request) const { return keys_.tenant_of(request.authorization).value(); }
  // Any thread. `tenant` must outlive it.
  [[nodiscard]] RequestContext context(std::string_view tenant) const { return {*model_, *options_, tenant, {}, false}; }

  // Any thread.
  [[nodiscard]] Reply refuse(const Error& error) const;
  [[nodiscard]] static Reply json_reply(std::string body);
  // What `handler` says; a 500 and a line in the log if it throws.
  [[nodiscard]] Reply guard(const std::string& id, const std::function<Reply()>& handler);
  [[nodiscard]] bool offload(JobPool::Lane lane, JobPool::Function work, JobPool::Function done) {
    return offload_(lane, std::move(work), std::move(done));
  }

  // What is left to do on the server's thread when a body has been read.
  using Then = std::function<Reply(const Wake& wake)>;
  using Read = std::function<Then(std::string body)>;
  // Runs `read` here if there are few bytes to read, else in the job pool. `num_bytes`: where more is read than the body.
  [[nodiscard]] Reply read_body(HttpRequest& request, std::size_t num_bytes, const Wake& wake, Read read);
  [[nodiscard]] Reply read_body(HttpRequest& request, const Wake& wake, Read read) {
    const std::size_t num_bytes = request.body.size();
    return read_body(request, num_bytes, wake, std::move(read));
  }
  // Of a body that `answer` makes the whole answer of: JSON.
  using Answer = std::function<Result<std::string>(std::string body)>;
  [[nodiscard]] Reply answer_body(HttpRequest& request, std::size_t num_bytes, const Wake& wake, Answer answer);
  [[nodiscard]] Reply answer_body(HttpRequest& request, const Wake& wake, Answer answer) {
    const std::size_t num_bytes = request.body.size();
    return answer_body(request, num_bytes, wake, std::move(answer));
  }
  // Any thread: an error as what is left to do.
  [[nodiscard]] Then refusal(const Error& error) const;

  // An answer of the model to what `read` makes of the body: a request with a shape. Refused while draining.
  using ReadCompletion = std::function<Result<CompletionRequest>(std::string body, const RequestContext& context)>;
  // What becomes of it; the usual: start().
  using Start = Reply (*)(Serving& serving, PreparedCompletion prepared, const std::string& request_id, const Wake& wake);
  // `computes`: it is to have the weights of the adapter that it names.
  [[nodiscard]] Reply complete(HttpRequest& request, std::size_t num_bytes, const Wake& wake, ReadCompletion read, Start begin = start_now,
                               bool computes = true);
  [[nodiscard]] Reply complete(HttpRequest& request, const Wake& wake, ReadCompletion read, Start begin = start_now, bool computes = true) {
    const std::size_t num_bytes = request.body.size();
    return complete(request, num_bytes, wake, std::move(read), begin, computes);
  }
  [[nodiscard]] Reply start(PreparedCompletion prepared, const std::string& request_id, const Wake& wake);

  // Goes on with the lease of an adapter (empty: of none): here where its weights are in memory, else when the job pool has read them.
  using Lease = std::shared_ptr<const AdapterLease>;
  using WithLease = std::function<Reply(const Lease& lease)>;
  [[nodiscard]] Reply with_adapter(const std::string& adapter, const std::string& request_id, const Wake& wake, WithLease go_on);
  // Runs `work` in the lane for disks, and then `reply` here, whose answer is that to the request. `what` names the work in an error.
  [[nodiscard]] Reply read_files(const std::string& request_id, const Wake& wake, const char* what, std::function<void()> work,
                                 std::function<Reply()> reply);

  // Of this tenant, under way; else the error.
  [[nodiscard]] Result<std::shared_ptr<Completion>> find(const std::string& tenant, const std::string& id) const;
  void remember(const std::string& tenant, const std::string& id, const std::shared_ptr<Completion>& completion);

 private:
  // Of one that wants to be compared, or to be compared with.
  void compare_prompt(CompletionRequest& request, PromptPrint print, const std::string& id);
  static Reply start_now(Serving& serving, PreparedCompletion prepared, const std::string& request_id, const Wake& wake);

  EngineClient* engine_;
  const ServedModel* model_;
  const ServerOptions* options_;
  Offload offload_;
  // Of the server, in seconds since 1970.
  std::int64_t started_s_;
  bool draining_ = false;
  // By tenant and the ids of their answers; swept of those that are over when it has doubled.
  std::map<std::pair<std::string, std::string>, std::weak_ptr<Completion>> completions_;
  std::size_t sweep_at_ = 64;
  PromptPrints prints_{kMaxPrintBytes};
  ApiKeys keys_;
  RequestLog log_;
  // What the server has counted; /metrics shows it.
  ServerStats stats_;
};

// Since 1970, by the clock of this place.
[[nodiscard]] std::int64_t unix_now_s();

}  // namespace quire
