#include "server/router.h"

#include <fmt/format.h>

#include <chrono>
#include <random>

#include "base/json_text.h"
#include "server/http/error_response.h"
#include "server/http/request_guard.h"
#include "server/operate/admin.h"
#include "server/request/small_requests.h"
#include "text/utf8.h"

namespace quire {

namespace {

// Pauses wait for the engine, also those of operators that have left.
constexpr std::uint32_t kMaxAsked = 64;
// Bodies up to here cost less to read, render and tokenize than to hand to another thread and back.
constexpr std::size_t kMaxInlineBytes = 4 << 10;
constexpr std::size_t kMaxSmallBytes = 64 << 10;

std::int64_t now_s() {
  return std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
}

std::string id_prefix(const CompletionRequest& request) {
  if (request.shape == AnswerShape::message) return "msg_";
  if (request.shape == AnswerShape::response) return "resp_";
  return request.api == Api::chat ? "chatcmpl-" : "cmpl-";
}

}  // namespace

Router::Router(EngineClient& engine, const ServedModel& model, const ServerOptions& options, Logger& logger, Offload offload)
    : engine_(&engine),
      model_(&model),
      options_(&options),
      offload_(std::move(offload)),
      started_s_(now_s()),
      run_id_((std::uint64_t{std::random_device()()} << 32) | std::random_device()()),
      responses_(options.max_response_store_bytes),
      keys_(options),
      body_budget_(options.max_body_bytes_in_flight),
      log_(logger, options.log_slow_ms) {}

// "*" stands for a name without "/".
std::string_view Router::name_in(std::string_view route, std::string_view path) {
  const std::size_t star = route.find('*');
  const std::string_view before = route.substr(0, star), behind = route.substr(star + 1);
  if (path.size() <= before.size() + behind.size() || !path.starts_with(before) || !path.ends_with(behind)) return {};
  const std::string_view name = path.substr(before.size(), path.size() - before.size() - behind.size());
  return name.find('/') == std::string_view::npos ? name : std::string_view();
}

const Router::Route* Router::find_route(std::string_view path, std::string_view method, std::string& allowed) {
  static constexpr Route kRoutes[] = {
      {"/", "GET", Access::open, &Router::chat_page},
      {"/docs", "GET", Access::open, &Router::api_page},
      {"/openapi.json", "GET", Access::open, &Router::openapi},
      {"/health", "GET", Access::open, &Router::health},
      {"/ready", "GET", Access::open, &Router::ready},
      {"/v1/models", "GET", Access::key, &Router::models},
      {"/version", "GET", Access::key, &Router::version},
      {"/metrics", "GET", Access::own_key, &Router::metrics},
      {"/v1/cache", "GET", Access::own_key, &Router::cache},
      {"/tokenize", "POST", Access::key, &Router::tokenize},
      {"/detokenize", "POST", Access::key, &Router::detokenize},
      {"/tokenizer_info", "GET", Access::key, &Router::tokenizer_info},
      {"/v1/completions", "POST", Access::key, &Router::completions},
      {"/v1/chat/completions", "POST", Access::key, &Router::chat_completions},
      {"/v1/messages", "POST", Access::key, &Router::messages},
      {"/v1/messages/count_tokens", "POST", Access::key, &Router::count_tokens},
      {"/v1/responses", "POST", Access::key, &Router::create_response},
      {"/v1/responses/input_tokens", "POST", Access::key, &Router::count_input_tokens},
      {"/v1/responses/*", "GET", Access::key, &Router::read_response},
      {"/v1/responses/*", "DELETE", Access::key, &Router::delete_response},
      {"/v1/responses/*/input_items", "GET", Access::key, &Router::read_response_input},
      {"/v1/embeddings", "POST", Access::key, &Router::embeddings},
      {"/pooling", "POST", Access::key, &Router::pooling},
      {"/score", "POST", Access::key, &Router::score},
      {"/v1/score", "POST", Access::key, &Router::score},
      {"/rerank", "POST", Access::key, &Router::rerank},
      {"/v1/rerank", "POST", Access::key, &Router::rerank},
      {"/v2/rerank", "POST", Access::key, &Router::rerank},
      {"/v1/requests/*/fork", "POST", Access::key, &Router::fork},
      {"/v1/requests/*/input", "POST", Access::key, &Router::append_input},
      {"/reset_prefix_cache", "POST", Access::admin, &Router::reset_prefix_cache},
      {"/pause", "POST", Access::admin, &Router::pause},
      {"/resume", "POST", Access::admin, &Router::resume},
      {"/is_paused", "GET", Access::admin, &Router::is_paused},
  };
  for (const Route& route : kRoutes) {
    const bool has_name = route.path.find('*') != std::string_view::npos;
    if (has_name ? name_in(route.path, path).empty() : route.path != path) continue;
    if (route.method == method || (route.method == "GET" && method == "HEAD")) return &route;
    allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
  }
  return nullptr;
}

Reply Router::refuse(const Error& error) const {
  return {error_response(error, options_->retry_after_s)};
}

std::optional<HttpResponse> Router::answer_early(const HttpRequest& request) const {
  if (auto answer = guard_request(request, *options_)) return answer;
  std::string allowed;
  const Route* route = find_route(request.path(), request.method, allowed);
  if (route != nullptr && route->access == Access::open) return std::nullopt;
  const auto tenant = keys_.tenant_of(request.authorization);
  if (!tenant) return error_response(401, tenant.error());
  if (route == nullptr) return no_route(request, allowed);
  if (route->access != Access::key && !tenant->empty())
    return error_response(403, {ErrorCode::invalid_argument, "Authorization",
                                "holds a tenant's key, and this is for who operates the server", "send the server's own key (--api-key)"});
  if (route->access == Access::admin) {
    if (const auto admitted = admit_operator(request, *options_); !admitted) return error_response(403, admitted.error());
  }
  return std::nullopt;
}

HttpResponse Router::no_route(const HttpRequest& request, const std::string& allowed) {
  const std::string shown = repair_utf8(request.path().substr(0, 200));
  if (allowed.empty()) {
    return error_response({ErrorCode::not_found, "", fmt::format("there is no '{}' here", shown),
                           "see /v1/models, /v1/chat/completions and /v1/completions"});
  }
  HttpResponse response = error_response(
      405, {ErrorCode::invalid_argument, "", fmt::format("'{}' does not take {}", shown, request.method), fmt::format("use {}", allowed)});
  response.headers.emplace_back("Allow", allowed);
  return response;
}

Reply Router::handle(HttpRequest& request, const Wake& wake) {
  std::string allowed;
  const Route* route = find_route(request.path(), request.method, allowed);
  return guard(request.id, [&] { return (this->*route->handler)(request, wake); });
}

HttpResponse Router::answer_or_refuse(Result<std::string> body) const {
  return body ? HttpResponse{200, "application/json", std::move(*body), {}} : error_response(body.error(), options_->retry_after_s);
}

Reply Router::tokenize(HttpRequest& request, const Wake& wake) {
  return offload(request, wake, [this](std::string body) { return answer_or_refuse(answer_tokenize(std::move(body), *model_)); });
}

Reply Router::detokenize(HttpRequest& request, const Wake& wake) {
  return offload(request, wake, [this](std::string body) { return answer_or_refuse(answer_detokenize(std::move(body), *model_)); });
}

Reply Router::completions(HttpRequest& request, const Wake& wake) {
  return complete(Api::completion, request, wake);
}

Reply Router::chat_completions(HttpRequest& request, const Wake& wake) {
  return complete(Api::chat, request, wake);
}

Reply Router::messages(HttpRequest& request, const Wake& wake) {
  if (draining_) return refuse({ErrorCode::shutting_down, "", "the server is shutting down", "send the request elsewhere"});
  return offload(request, wake, [this, tenant = keys_.tenant_of(request.authorization).value()](std::string body) -> Prepared {
    auto prepared = prepare_message(std::move(body), tenant, *model_, *options_);
    if (!prepared) return error_response(prepared.error(), options_->retry_after_s);
    return std::move(*prepared);
  });
}

Reply Router::count_tokens(HttpRequest& request, const Wake& wake) {
  return offload(request, wake,
                 [this](std::string body) { return answer_or_refuse(answer_count_tokens(std::move(body), *model_, *options_)); });
}

std::string Router::next_request_id() {
  return fmt::format("{:016x}{:08x}", run_id_, num_requests_++);
}

Reply Router::complete(Api api, HttpRequest& request, const Wake& wake) {
  if (draining_) return refuse({ErrorCode::shutting_down, "", "the server is shutting down", "send the request elsewhere"});
  return offload(request, wake, [this, api, tenant = keys_.tenant_of(request.authorization).value()](std::string body) -> Prepared {
    auto prepared = prepare_completion(api, std::move(body), tenant, *model_, *options_);
    if (!prepared) return error_response(prepared.error(), options_->retry_after_s);
    return std::move(*prepared);
  });
}

Reply Router::offload(HttpRequest& request, std::size_t num_bytes, const Wake& wake, Prepare prepare) {
  if (num_bytes <= kMaxInlineBytes) return conclude(prepare(std::move(request.body)), request.id, wake);
  const auto lane = num_bytes <= kMaxSmallBytes ? JobPool::Lane::small : JobPool::Lane::large;
  struct Job {
    std::string id, body;
    std::shared_ptr<BodyBudget::Lease> lease;  // held while there are copies and parts of the body
    Prepare prepare;
    Prepared prepared;
    std::exception_ptr failure{};
  };
  auto job = std::make_shared<Job>(Job{request.id, std::move(request.body), std::move(request.body_lease), std::move(prepare), {}});
  auto pending = std::make_shared<PendingReply>();
  auto work = [job, pending] {
    try {
      if (!pending->cancelled) job->prepared = job->prepare(std::move(job->body));
    } catch (const std::exception&) {
      job->failure = std::current_exception();
    }
  };
  auto done = [this, job, pending, wake] {
    if (pending->cancelled) return;
    const auto finish = [&] {
      if (job->failure) std::rethrow_exception(job->failure);
      return conclude(std::move(job->prepared), job->id, wake);
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

Reply Router::conclude(Prepared prepared, const std::string& id, const Wake& wake) {
  if (auto* response = std::get_if<HttpResponse>(&prepared)) return {std::move(*response)};
  if (auto* pooling = std::get_if<PreparedPooling>(&prepared)) return start_pooling(std::move(*pooling), id, wake);
  if (auto* input = std::get_if<PreparedInput>(&prepared)) return give_input(std::move(*input));
  auto& completion = std::get<PreparedCompletion>(prepared);
  const std::string answer_id = id_prefix(completion.request) + id;
  if (completion.request.hidden_states) return start_states(std::move(completion), answer_id, wake);
  return start_completion(std::move(completion), answer_id, {}, wake);
}

Reply Router::start_completion(PreparedCompletion prepared, const std::string& answer_id, std::string hidden_states_path,
                               const Wake& wake) {
  const std::string tenant = prepared.request.tags.tenant;
  auto started =
      Completion::start(*engine_, *model_, {std::move(prepared), answer_id, now_s(), wake, &responses_, std::move(hidden_states_path)});
  if (!started) return refuse(started.error());
  remember(tenant, answer_id, *started);
  return {HttpResponse{}, std::move(*started)};
}

void Router::remember(const std::string& tenant, const std::string& id, const std::shared_ptr<Completion>& completion) {
  completions_.insert_or_assign({tenant, id}, completion);
  if (completions_.size() < sweep_at_) return;
  std::erase_if(completions_, [](const auto& entry) { return entry.second.expired(); });
  sweep_at_ = std::max<std::size_t>(64, 2 * completions_.size());
}

// What another tenant has open does not exist here.
Result<std::shared_ptr<Completion>> Router::find_completion(const std::string& tenant, const std::string& id) const {
  const auto found = completions_.find({tenant, id});
  std::shared_ptr<Completion> completion = found != completions_.end() ? found->second.lock() : nullptr;
  if (completion != nullptr) return completion;
  return fail(ErrorCode::not_found, "id", fmt::format("no answer '{}' is under way", shown(id)),
              "take the id from the first event of a stream");
}

Reply Router::append_input(HttpRequest& request, const Wake& wake) {
  std::string id(name_in("/v1/requests/*/input", request.path()));
  return offload(request, wake,
                 [this, id = std::move(id), tenant = keys_.tenant_of(request.authorization).value()](const std::string& body) -> Prepared {
                   auto input = prepare_input(body, *model_);
                   if (!input) return error_response(input.error(), options_->retry_after_s);
                   input->tenant = tenant;
                   input->id = id;
                   return std::move(*input);
                 });
}

Reply Router::give_input(PreparedInput input) {
  const auto session = find_completion(input.tenant, input.id);
  if (!session) return refuse(session.error());
  const std::size_t num_tokens = input.tokens.size();
  if (const auto given = (*session)->append(std::move(input.tokens), input.is_last); !given) return refuse(given.error());
  return json_reply(fmt::format(R"({{"id":{},"num_tokens":{},"end":{}}})", json_string(input.id), num_tokens, input.is_last));
}

Reply Router::fork(HttpRequest& request, const Wake& wake) {
  if (draining_) return refuse({ErrorCode::shutting_down, "", "the server is shutting down", ""});
  if (request.body.size() > kMaxInlineBytes)
    return refuse({ErrorCode::invalid_argument, "", fmt::format("the body has {} bytes", request.body.size()),
                   "send choice, n, seed, max_tokens, stream"});
  const auto call = parse_fork_call(request.body, options_->max_choices);
  if (!call) return refuse(call.error());
  const std::string id(name_in("/v1/requests/*/fork", request.path()));
  const std::string tenant = keys_.tenant_of(request.authorization).value();
  const auto parent = find_completion(tenant, id);
  if (!parent) return refuse(parent.error());
  const std::string child_id = (id.starts_with("cmpl-") ? "cmpl-" : "chatcmpl-") + request.id;
  auto forked = (*parent)->fork(*call, {.prepared = {}, .id = child_id, .created_s = now_s(), .wake = wake, .responses = nullptr});
  if (!forked) return refuse(forked.error());
  remember(tenant, child_id, *forked);
  return {HttpResponse{}, std::move(*forked)};
}

Reply Router::guard(const std::string& id, const std::function<Reply()>& handler) {
  try {
    return handler();
  } catch (const std::exception&) {
    log_.failed(id, std::current_exception());
    return {error_response(500, {ErrorCode::io, "", "the server failed on this request", fmt::format("the log says more of {}", id)})};
  }
}

// What may wait for long is bounded; resume() ends such waits and is answered at once, so it is always let through.
std::optional<Reply> Router::too_many_wait() {
  if (num_asked_ < kMaxAsked) return std::nullopt;
  return refuse({ErrorCode::overloaded, "", fmt::format("{} operators wait for the engine already", kMaxAsked), "try again"});
}

Reply Router::ask_engine(const Wake& wake, std::string (*body)(bool), const std::function<void(ControlAnswer)>& ask) {
  auto pending = std::make_shared<PendingReply>();
  ++num_asked_;
  ask(engine_->on_server([this, pending, body, wake, retry_after_s = options_->retry_after_s](const Result<bool>& answer) {
    --num_asked_;
    pending->reply =
        Reply{answer ? HttpResponse{200, "application/json", body(*answer), {}} : error_response(answer.error(), retry_after_s)};
    wake();
  }));
  return {HttpResponse{}, nullptr, std::move(pending)};
}

Reply Router::reset_prefix_cache(HttpRequest& request, const Wake& wake) {
  const auto parsed = parse_cache_reset(request);
  if (!parsed) return refuse(parsed.error());
  if (auto refusal = too_many_wait()) return *std::move(refusal);
  return ask_engine(wake, cache_reset_body,
                    [&](ControlAnswer answer) { engine_->engine().reset_prefix_cache(*parsed, std::move(answer)); });
}

Reply Router::pause(HttpRequest& request, const Wake& wake) {
  const auto parsed = parse_pause(request);
  if (!parsed) return refuse(parsed.error());
  if (auto refusal = too_many_wait()) return *std::move(refusal);
  return ask_engine(wake, pause_body, [&](ControlAnswer answer) { engine_->engine().pause(*parsed, std::move(answer)); });
}

Reply Router::resume(HttpRequest& request, const Wake& wake) {
  if (const auto parsed = parse_resume(request); !parsed) return refuse(parsed.error());
  return ask_engine(
      wake, [](bool) { return pause_body(false); }, [&](ControlAnswer answer) { engine_->engine().resume(std::move(answer)); });
}

Reply Router::is_paused(HttpRequest& /*request*/, const Wake& /*wake*/) {
  return json_reply(fmt::format(R"({{"is_paused":{}}})", engine_->engine().stats().is_paused));
}

}  // namespace quire
