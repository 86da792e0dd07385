// Code that the routes of all APIs share: reads bodies, starts and finds answers, and reports failures. Runs on the server's thread, except
// the `read` functions of read_body(), which run in the job pool. A `read` function may use only members of Serving that can be called on
// any thread. A handler never waits: it returns a PendingReply and calls `wake` when the reply is complete.
#include "server/api/serving.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <string_view>

#include "base/check.h"
#include "server/answers/completion.h"
#include "server/http/answer_id.h"
#include "server/http/error_response.h"
#include "server/request/prepare.h"
#include "server/request/served_model.h"

namespace quire {

namespace {

// Larger bodies have a separate lane, so that small bodies need not wait for large ones.
constexpr std::size_t kMaxSmallBytes = 64 << 10;

std::unique_ptr<SpanExporter> make_spans(const ServerOptions& options, const std::string& model, Logger& logger) {
  if (options.otlp_traces_endpoint.empty()) return nullptr;
  auto endpoint = parse_span_endpoint(options.otlp_traces_endpoint, "otlp_traces_endpoint");
  QUIRE_CHECK(endpoint.has_value(), "the URL of the OpenTelemetry collector is valid");
  return std::make_unique<SpanExporter>(
      SpanExporter::Options{.endpoint = *std::move(endpoint), .model = model, .service = options.otlp_service_name}, logger);
}

// Returns whether the body may contain an image. A body with an image goes to the job pool, because a small file may have many pixels. A
// body can hide the word "image" only with an escape.
bool may_show(std::string_view body) {
  return body.find("image") != std::string_view::npos || body.find("\\u00") != std::string_view::npos;
}

// Returns whether the body may contain the URL of an image. A body with a URL has a separate lane, so that other requests do not wait for
// the fetch.
bool may_name_address(std::string_view body) {
  return body.find("\"http") != std::string_view::npos || body.find("\\u00") != std::string_view::npos;
}

}  // namespace

std::int64_t unix_now_s() {
  return std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
}

Serving::Serving(EngineClient& engine, const ServedModel& model, const ServerOptions& options, Logger& logger, SubmitJob submit_job)
    : engine_(&engine),
      model_(&model),
      options_(&options),
      submit_job_(std::move(submit_job)),
      started_s_(unix_now_s()),
      keys_(options),
      log_(logger, options.log_slow_ms, make_spans(options, model.name(), logger)) {}

Reply Serving::refuse(const Error& error) const {
  return {error_response(error, options_->retry_after_s)};
}

Reply Serving::json_reply(std::string body) {
  return {HttpResponse{200, "application/json", std::move(body), {}}};
}

Reply Serving::with_ignored_fields(Reply reply, const std::string& id, const std::vector<std::string>& ignored) {
  if (ignored.empty()) return reply;
  std::string names = fmt::format("{}", fmt::join(ignored, ", "));
  log_.ignored(id, names);
  reply.response.headers.emplace_back(kIgnoredFields, std::move(names));
  return reply;
}

Reply Serving::guard(const std::string& id, const std::function<Reply()>& handler) {
  try {
    return handler();
  } catch (const std::exception&) {
    log_.failed(id, std::current_exception());
    return {error_response(500, {ErrorCode::io, "", "internal server error", fmt::format("see the log entries of request {}", id)})};
  }
}

Serving::RemainingWork Serving::refusal(const Error& error) const {
  return [reply = refuse(error)](const Wake& /*wake*/) mutable { return std::move(reply); };
}

Reply Serving::read_body(HttpRequest& request, std::size_t num_bytes, const Wake& wake, Read read) {
  const ImageReading image_reading = model_->image_reading();
  const bool shows = image_reading.supports_images && may_show(request.body);
  if (num_bytes <= kMaxInlineBytes && !shows) return read(std::move(request.body), CancellationPoint())(wake);
  const auto lane = shows && image_reading.fetcher != nullptr && may_name_address(request.body) ? JobPool::Lane::fetch
                    : num_bytes <= kMaxSmallBytes && !shows                                     ? JobPool::Lane::small
                                                                                                : JobPool::Lane::large;
  struct Job {
    std::string id, body;
    std::shared_ptr<BodyBudget::Lease> lease;  // held as long as copies or parts of the body exist
    Read read;
    RemainingWork then;
    std::exception_ptr failure{};
  };
  auto job = std::make_shared<Job>(Job{request.id, std::move(request.body), std::move(request.body_lease), std::move(read), {}});
  auto pending = std::make_shared<PendingReply>();
  auto work = [this, job, pending](const CancellationPoint& cancellation) {
    try {
      if (!pending->cancelled) job->then = job->read(std::move(job->body), cancellation);
    } catch (const JobStopped& stopped) {
      if (stopped.why == JobStopped::Reason::out_of_time) job->then = refusal(read_timeout_error());
    } catch (const std::exception&) {
      job->failure = std::current_exception();
    }
  };
  auto done = [this, job, pending, wake] {
    // If the client has disconnected, its result is dropped and no answer is started.
    if (pending->cancelled) return;
    const auto finish = [&] {
      if (job->failure) std::rethrow_exception(job->failure);
      return job->then(wake);
    };
    pending->reply = guard(job->id, finish);
    wake();
  };
  if (!submit_job_(lane, {.work = std::move(work),
                          .done = std::move(done),
                          .client = request.client,
                          .num_bytes = num_bytes,
                          .cancelled = {pending, &pending->cancelled}})) {
    return {error_response(503, {ErrorCode::overloaded, "", "too many large requests are waiting to be parsed", "try again later"},
                           options_->retry_after_s)};
  }
  return {HttpResponse{}, nullptr, std::move(pending)};
}

Error Serving::read_timeout_error() const {
  return {ErrorCode::too_large, "", fmt::format("parsing the request takes more than {} ms of CPU time", options_->max_parse_ms),
          "send fewer messages, or fewer and smaller images, or raise --max-parse-ms"};
}

Reply Serving::run_disk_job(const std::string& request_id, const Wake& wake, const char* what, std::function<void()> work,
                            std::function<Reply()> reply) {
  auto pending = std::make_shared<PendingReply>();
  auto failure = std::make_shared<std::exception_ptr>();
  auto run = [work = std::move(work), failure] {
    try {
      work();
    } catch (const std::exception&) {
      *failure = std::current_exception();
    }
  };
  auto done = [this, request_id, pending, failure, wake, reply = std::move(reply)] {
    if (pending->cancelled) return;
    pending->reply = guard(request_id, [&] {
      if (*failure) std::rethrow_exception(*failure);
      return reply();
    });
    wake();
  };
  if (submit_job(JobPool::Lane::disk, {}, run, std::move(done))) return {HttpResponse{}, nullptr, std::move(pending)};
  return {error_response(503, {ErrorCode::overloaded, "", fmt::format("too many {} are waiting for the disk", what), "try again later"},
                         options_->retry_after_s)};
}

Reply Serving::with_adapter(const std::string& adapter, const std::string& request_id, const Wake& wake, WithLease with_lease) {
  if (adapter.empty()) return with_lease(nullptr);
  const auto reply = [this](const Result<Lease>& lease, const WithLease& then) {
    if (lease) return then(*lease);
    Error error = lease.error();
    if (error.code == ErrorCode::not_found) error.field = "model";  // the adapter or its folder is gone since the request was read
    return refuse(error);
  };
  auto lease = std::make_shared<Result<Lease>>(engine_->engine().lease_adapter(adapter, false));
  if (!*lease || **lease != nullptr) return reply(*lease, with_lease);
  const auto work = [engine = &engine_->engine(), adapter, lease] { *lease = engine->lease_adapter(adapter, true); };
  return run_disk_job(request_id, wake, "requests for adapters", work,
                      [reply, lease, with_lease = std::move(with_lease)] { return reply(*lease, with_lease); });
}

Reply Serving::answer_body(HttpRequest& request, std::size_t num_bytes, const Wake& wake, Answer answer) {
  return read_body(request, num_bytes, wake,
                   [this, answer = std::move(answer)](std::string body, const CancellationPoint& cancellation) -> RemainingWork {
                     auto text = answer(std::move(body), cancellation);
                     if (!text) return refusal(text.error());
                     return [reply = json_reply(*std::move(text))](const Wake& /*wake*/) mutable { return std::move(reply); };
                   });
}

Serving::RemainingWork Serving::answer_directly(DirectAnswer answer, const std::string& id) {
  if (const auto heeded = check_ignored(answer.ignored, *options_); !heeded) return refusal(heeded.error());
  return [this, id, answer = std::move(answer)](const Wake& /*wake*/) {
    return with_ignored_fields(json_reply(answer.json), id, answer.ignored);
  };
}

Reply Serving::complete(HttpRequest& request, std::size_t num_bytes, const Wake& wake, ReadCompletion read, Start begin, bool computes) {
  if (draining_) return refuse({ErrorCode::shutting_down, "", "the server is shutting down", "send the request to another server"});
  return read_body(
      request, num_bytes, wake,
      [this, read = std::move(read), begin, computes, id = request.id, answer_id = request.answer_id(), tenant = tenant_of(request),
       session = request.session, is_beta = request.is_beta](std::string body, const CancellationPoint& cancellation) -> RemainingWork {
        const RequestContext caller{*model_, *options_, tenant, session, is_beta, &cancellation};
        auto parsed = read(std::move(body), caller);
        if (!parsed) return refusal(parsed.error());
        if (auto* const direct = std::get_if<DirectAnswer>(&*parsed)) return answer_directly(std::move(*direct), id);
        auto prepared = prepare_completion(std::get<CompletionRequest>(*std::move(parsed)), caller);
        if (!prepared) return refusal(prepared.error());
        return [this, begin, computes, id, answer_id,
                kept = std::make_shared<PreparedCompletion>(*std::move(prepared))](const Wake& then_wake) {
          const auto with_lease = [this, begin, answer_id, kept, then_wake](const Lease& lease) {
            for (EngineRequest& prompt : kept->prompts) prompt.adapter_lease = lease;
            return begin(*this, std::move(*kept), answer_id, then_wake);
          };
          return computes ? with_adapter(kept->request.adapter, id, then_wake, with_lease) : with_lease(nullptr);
        };
      });
}

Reply Serving::start_now(Serving& serving, PreparedCompletion prepared, const std::string& answer_id, const Wake& wake) {
  return serving.start(std::move(prepared), answer_id, wake);
}

Reply Serving::start(PreparedCompletion prepared, const std::string& answer_id, const Wake& wake) {
  const std::string tenant = prepared.request.tags.tenant;
  const std::string id = std::string(prepared.request.shape->id_prefix()) + answer_id;
  if (std::optional<PromptFingerprint> fingerprint = std::exchange(prepared.fingerprint, std::nullopt); fingerprint.has_value())
    compare_prompt(prepared.request, *std::move(fingerprint), id);
  auto started = Completion::start(*engine_, *model_, {std::move(prepared), id, unix_now_s(), wake});
  if (!started) return refuse(started.error());
  remember(tenant, id, *started);
  return {HttpResponse{}, std::move(*started)};
}

void Serving::compare_prompt(CompletionRequest& request, PromptFingerprint fingerprint, const std::string& id) {
  const std::string& tenant = request.tags.tenant;
  const std::string with = request.compare.value_or(ComparisonRequest{}).with;
  if (!with.empty()) {
    const PromptFingerprint* const earlier = fingerprints_.find(tenant, with);
    request.compared = std::make_shared<const PromptComparison>(earlier != nullptr ? compare(*earlier, fingerprint)
                                                                                   : PromptComparison{.change = PromptChange::not_found});
  }
  fingerprints_.keep(tenant, id, std::move(fingerprint));
}

void Serving::remember(const std::string& tenant, const std::string& id, const std::shared_ptr<Completion>& completion) {
  completions_.insert_or_assign({tenant, id}, StartedCompletion{id, completion});
  // If a client sends the id of another answer as X-Request-Id, find() must still return that answer for this id.
  if (const std::string given(client_part(id)); !given.empty())
    if (StartedCompletion& newest = completions_[{tenant, given}]; newest.id != given) newest = {id, completion};
  if (completions_.size() < sweep_threshold_) return;
  std::erase_if(completions_, [](const auto& entry) { return entry.second.completion.expired(); });
  sweep_threshold_ = std::max<std::size_t>(64, 2 * completions_.size());
}

std::string Serving::full_id(const std::string& tenant, const std::string& id) const {
  const auto found = completions_.find({tenant, id});
  return found != completions_.end() ? found->second.id : id;
}

std::vector<Serving::AnswerInProgress> Serving::answers_in_progress() const {
  std::vector<AnswerInProgress> answers;
  for (const auto& [key, started] : completions_) {
    if (key.second != started.id) continue;  // the same answer under the client's id
    if (std::shared_ptr<const Completion> completion = started.completion.lock(); completion != nullptr && !completion->finished())
      answers.push_back({started.id, std::move(completion)});
  }
  return answers;
}

// Finds only answers of this tenant.
Result<std::shared_ptr<Completion>> Serving::find(const std::string& tenant, const std::string& id) const {
  const auto found = completions_.find({tenant, id});
  std::shared_ptr<Completion> completion = found != completions_.end() ? found->second.completion.lock() : nullptr;
  if (completion != nullptr) return completion;
  return fail(ErrorCode::not_found, "id", fmt::format("no answer '{}' is in progress", shown(id)),
              "use the id from the first event of a stream");
}

}  // namespace quire
