// What the routes of all APIs have in common: bodies are read, answers begun and found again, failures told. All on the server's thread,
// but for the function that read_body() hands to the job pool: of this object that one may use only what is said to be of any thread. A
// handler never waits: what is not there yet is a PendingReply, and `wake` says when it is.
#include "server/api/serving.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <string_view>

#include "base/check.h"
#include "server/answers/completion.h"
#include "server/http/error_response.h"
#include "server/request/prepare.h"
#include "server/request/served_model.h"

namespace quire {

namespace {

// Larger ones have a lane of their own, so that small ones need not wait for them.
constexpr std::size_t kMaxSmallBytes = 64 << 10;

std::unique_ptr<SpanExporter> make_spans(const ServerOptions& options, const std::string& model, Logger& logger) {
  if (options.otlp_traces_endpoint.empty()) return nullptr;
  auto endpoint = parse_span_endpoint(options.otlp_traces_endpoint, "otlp_traces_endpoint");
  QUIRE_CHECK(endpoint.has_value(), "options are validated before");
  return std::make_unique<SpanExporter>(
      SpanExporter::Options{.endpoint = *std::move(endpoint), .model = model, .service = options.otlp_service_name}, logger);
}

// A picture of few bytes may have many pixels. A body that hides the word has an escape in it.
bool may_show(std::string_view body) {
  return body.find("image") != std::string_view::npos || body.find("\\u00") != std::string_view::npos;
}

// A picture that must be fetched: nobody else is to wait for that.
bool may_name_address(std::string_view body) {
  return body.find("\"http") != std::string_view::npos || body.find("\\u00") != std::string_view::npos;
}

}  // namespace

std::int64_t unix_now_s() {
  return std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
}

Serving::Serving(EngineClient& engine, const ServedModel& model, const ServerOptions& options, Logger& logger, Offload offload)
    : engine_(&engine),
      model_(&model),
      options_(&options),
      offload_(std::move(offload)),
      started_s_(unix_now_s()),
      keys_(options),
      log_(logger, options.log_slow_ms, make_spans(options, model.name(), logger)) {}

Reply Serving::refuse(const Error& error) const {
  return {error_response(error, options_->retry_after_s)};
}

Reply Serving::json_reply(std::string body) {
  return {HttpResponse{200, "application/json", std::move(body), {}}};
}

Reply Serving::guard(const std::string& id, const std::function<Reply()>& handler) {
  try {
    return handler();
  } catch (const std::exception&) {
    log_.failed(id, std::current_exception());
    return {error_response(500, {ErrorCode::io, "", "the server failed on this request", fmt::format("the log says more of {}", id)})};
  }
}

Serving::Then Serving::refusal(const Error& error) const {
  return [reply = refuse(error)](const Wake& /*wake*/) mutable { return std::move(reply); };
}

Reply Serving::read_body(HttpRequest& request, std::size_t num_bytes, const Wake& wake, Read read) {
  const PictureReading pictures = model_->picture_reading();
  const bool shows = pictures.sees && may_show(request.body);
  if (num_bytes <= kMaxInlineBytes && !shows) return read(std::move(request.body))(wake);
  const auto lane = shows && pictures.fetcher != nullptr && may_name_address(request.body) ? JobPool::Lane::fetch
                    : num_bytes <= kMaxSmallBytes && !shows                                ? JobPool::Lane::small
                                                                                           : JobPool::Lane::large;
  struct Job {
    std::string id, body;
    std::shared_ptr<BodyBudget::Lease> lease;  // held while there are copies and parts of the body
    Read read;
    Then then;
    std::exception_ptr failure{};
  };
  auto job = std::make_shared<Job>(Job{request.id, std::move(request.body), std::move(request.body_lease), std::move(read), {}});
  auto pending = std::make_shared<PendingReply>();
  auto work = [job, pending] {
    try {
      if (!pending->cancelled) job->then = job->read(std::move(job->body));
    } catch (const std::exception&) {
      job->failure = std::current_exception();
    }
  };
  auto done = [this, job, pending, wake] {
    // The client may have gone meanwhile: then nobody reads the answer, and nothing is started.
    if (pending->cancelled) return;
    const auto finish = [&] {
      if (job->failure) std::rethrow_exception(job->failure);
      return job->then(wake);
    };
    pending->reply = guard(job->id, finish);
    wake();
  };
  if (!offload_(lane, std::move(work), std::move(done))) {
    return {error_response(503, {ErrorCode::overloaded, "", "too many large requests wait to be read", "try again later"},
                           options_->retry_after_s)};
  }
  return {HttpResponse{}, nullptr, std::move(pending)};
}

Reply Serving::read_files(const std::string& request_id, const Wake& wake, const char* what, std::function<void()> work,
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
  if (offload_(JobPool::Lane::disk, std::move(run), std::move(done))) return {HttpResponse{}, nullptr, std::move(pending)};
  return {error_response(503, {ErrorCode::overloaded, "", fmt::format("too many {} wait for the disk", what), "try again later"},
                         options_->retry_after_s)};
}

Reply Serving::with_adapter(const std::string& adapter, const std::string& request_id, const Wake& wake, WithLease go_on) {
  if (adapter.empty()) return go_on(nullptr);
  const auto reply = [this](const Result<Lease>& lease, const WithLease& then) {
    if (lease) return then(*lease);
    Error error = lease.error();
    if (error.code == ErrorCode::not_found) error.field = "model";  // it has gone since the request was read, or its folder has
    return refuse(error);
  };
  auto lease = std::make_shared<Result<Lease>>(engine_->engine().lease_adapter(adapter, false));
  if (!*lease || **lease != nullptr) return reply(*lease, go_on);
  const auto work = [engine = &engine_->engine(), adapter, lease] { *lease = engine->lease_adapter(adapter, true); };
  return read_files(request_id, wake, "requests for adapters", work,
                    [reply, lease, go_on = std::move(go_on)] { return reply(*lease, go_on); });
}

Reply Serving::answer_body(HttpRequest& request, std::size_t num_bytes, const Wake& wake, Answer answer) {
  return read_body(request, num_bytes, wake, [this, answer = std::move(answer)](std::string body) -> Then {
    auto text = answer(std::move(body));
    if (!text) return refusal(text.error());
    return [reply = json_reply(*std::move(text))](const Wake& /*wake*/) mutable { return std::move(reply); };
  });
}

Reply Serving::complete(HttpRequest& request, std::size_t num_bytes, const Wake& wake, ReadCompletion read, Start begin, bool computes) {
  if (draining_) return refuse({ErrorCode::shutting_down, "", "the server is shutting down", "send the request elsewhere"});
  return read_body(request, num_bytes, wake,
                   [this, read = std::move(read), begin, computes, id = request.id, tenant = tenant_of(request), session = request.session,
                    is_beta = request.is_beta](std::string body) -> Then {
                     const RequestContext caller{*model_, *options_, tenant, session, is_beta};
                     auto parsed = read(std::move(body), caller);
                     if (!parsed) return refusal(parsed.error());
                     auto prepared = prepare_completion(*std::move(parsed), caller);
                     if (!prepared) return refusal(prepared.error());
                     return [this, begin, computes, id,
                             kept = std::make_shared<PreparedCompletion>(*std::move(prepared))](const Wake& then_wake) {
                       const auto go_on = [this, begin, id, kept, then_wake](const Lease& lease) {
                         for (EngineRequest& prompt : kept->prompts) prompt.adapter_lease = lease;
                         return begin(*this, std::move(*kept), id, then_wake);
                       };
                       return computes ? with_adapter(kept->request.adapter, id, then_wake, go_on) : go_on(nullptr);
                     };
                   });
}

Reply Serving::start_now(Serving& serving, PreparedCompletion prepared, const std::string& request_id, const Wake& wake) {
  return serving.start(std::move(prepared), request_id, wake);
}

Reply Serving::start(PreparedCompletion prepared, const std::string& request_id, const Wake& wake) {
  const std::string tenant = prepared.request.tags.tenant;
  const std::string id = std::string(prepared.request.shape->id_prefix()) + request_id;
  if (std::optional<PromptPrint> print = std::exchange(prepared.print, std::nullopt); print.has_value())
    compare_prompt(prepared.request, *std::move(print), id);
  auto started = Completion::start(*engine_, *model_, {std::move(prepared), id, unix_now_s(), wake});
  if (!started) return refuse(started.error());
  remember(tenant, id, *started);
  return {HttpResponse{}, std::move(*started)};
}

void Serving::compare_prompt(CompletionRequest& request, PromptPrint print, const std::string& id) {
  const std::string& tenant = request.tags.tenant;
  const std::string with = request.compare.value_or(PromptCompare{}).with;
  if (!with.empty()) {
    const PromptPrint* const earlier = prints_.find(tenant, with);
    request.compared = std::make_shared<const PromptComparison>(earlier != nullptr ? compare(*earlier, print)
                                                                                   : PromptComparison{.change = PromptChange::not_found});
  }
  prints_.keep(tenant, id, std::move(print));
}

void Serving::remember(const std::string& tenant, const std::string& id, const std::shared_ptr<Completion>& completion) {
  completions_.insert_or_assign({tenant, id}, completion);
  if (completions_.size() < sweep_at_) return;
  std::erase_if(completions_, [](const auto& entry) { return entry.second.expired(); });
  sweep_at_ = std::max<std::size_t>(64, 2 * completions_.size());
}

// What another tenant has open does not exist here.
Result<std::shared_ptr<Completion>> Serving::find(const std::string& tenant, const std::string& id) const {
  const auto found = completions_.find({tenant, id});
  std::shared_ptr<Completion> completion = found != completions_.end() ? found->second.lock() : nullptr;
  if (completion != nullptr) return completion;
  return fail(ErrorCode::not_found, "id", fmt::format("no answer '{}' is under way", shown(id)),
              "take the id from the first event of a stream");
}

}  // namespace quire
