#include "server/router.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <chrono>
#include <random>

#include "quire/version.h"
#include "server/admin.h"
#include "server/chat_page.h"
#include "server/json_text.h"
#include "server/openai_error.h"
#include "server/request_guard.h"
#include "text/utf8.h"

namespace quire {

namespace {

// Pauses wait for the engine, also those of operators that have left.
constexpr std::uint32_t kMaxAsked = 64;

std::int64_t now_s() {
  return std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
}

Reply json_reply(std::string body) {
  return {HttpResponse{200, "application/json", std::move(body), {}}};
}

std::string token_list(const std::vector<TokenId>& tokens) {
  return fmt::format("[{}]", fmt::join(tokens, ","));
}

}  // namespace

Router::Router(EngineClient& engine, const ServedModel& model, const ServerOptions& options)
    : engine_(&engine),
      model_(&model),
      options_(&options),
      started_s_(now_s()),
      run_id_((std::uint64_t{std::random_device()()} << 32) | std::random_device()()),
      body_budget_(options.max_body_bytes_in_flight) {}

const Router::Route* Router::find_route(std::string_view path, std::string_view method, std::string& allowed) {
  static constexpr Route kRoutes[] = {
      {"/", "GET", Access::open, &Router::chat_page},
      {"/health", "GET", Access::open, &Router::health},
      {"/v1/models", "GET", Access::key, &Router::models},
      {"/version", "GET", Access::key, &Router::version},
      {"/metrics", "GET", Access::key, &Router::metrics},
      {"/tokenize", "POST", Access::key, &Router::tokenize},
      {"/detokenize", "POST", Access::key, &Router::detokenize},
      {"/v1/completions", "POST", Access::key, &Router::completions},
      {"/v1/chat/completions", "POST", Access::key, &Router::chat_completions},
      {"/reset_prefix_cache", "POST", Access::admin, &Router::reset_prefix_cache},
      {"/pause", "POST", Access::admin, &Router::pause},
      {"/resume", "POST", Access::admin, &Router::resume},
      {"/is_paused", "GET", Access::admin, &Router::is_paused},
  };
  for (const Route& route : kRoutes) {
    if (route.path != path) continue;
    if (route.method == method || (route.method == "GET" && method == "HEAD")) return &route;
    allowed = route.method;
  }
  return nullptr;
}

Reply Router::refuse(const Error& error) const {
  return {error_response(error, options_->retry_after_s)};
}

Result<void> Router::authorize(const HttpRequest& request) const {
  const std::string expected = "Bearer " + options_->api_key;
  const std::string& given = request.authorization;
  if (options_->api_key.empty()) return {};
  // The comparison takes the same time wherever the keys differ.
  if (given.size() == expected.size() && CRYPTO_memcmp(given.data(), expected.data(), given.size()) == 0) return {};
  return fail(ErrorCode::invalid_argument, "Authorization", given.empty() ? "is missing" : "holds a wrong key",
              "send 'Authorization: Bearer KEY'");
}

std::optional<HttpResponse> Router::answer_early(const HttpRequest& request) const {
  if (auto answer = guard_request(request, *options_)) return answer;
  std::string allowed;
  const Route* route = find_route(request.path(), request.method, allowed);
  if (route == nullptr || route->access != Access::open) {
    if (const auto authorized = authorize(request); !authorized) return error_response(401, authorized.error());
  }
  if (route == nullptr) return no_route(request, allowed);
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

Reply Router::handle(const HttpRequest& request, const Wake& wake) {
  std::string allowed;
  return (this->*find_route(request.path(), request.method, allowed)->handler)(request, wake);
}

Reply Router::chat_page(const HttpRequest& /*request*/, const Wake& /*wake*/) {
  Reply reply{HttpResponse{200, "text/html; charset=utf-8", std::string(chat_page_html()), {}}};
  reply.response.headers = {{"Content-Security-Policy",
                             "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
                             "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
                            {"Cache-Control", "no-cache"}};
  return reply;
}

Reply Router::health(const HttpRequest& /*request*/, const Wake& /*wake*/) {
  if (draining_) return refuse({ErrorCode::shutting_down, "", "the server is shutting down", ""});
  return json_reply(R"({"status":"ok"})");
}

Reply Router::version(const HttpRequest& /*request*/, const Wake& /*wake*/) {
  return json_reply(fmt::format(R"({{"version":"{}"}})", kVersion));
}

Reply Router::models(const HttpRequest& /*request*/, const Wake& /*wake*/) {
  return json_reply(
      fmt::format(R"({{"object":"list","data":[{{"id":{},"object":"model","created":{},"owned_by":"quire","root":{},"parent":null,)"
                  R"("max_model_len":{}}}]}})",
                  json_string(model_->name()), started_s_, json_string(engine_->engine().model().name), model_->max_model_len()));
}

Reply Router::metrics(const HttpRequest& /*request*/, const Wake& /*wake*/) {
  return {
      HttpResponse{200, "text/plain; version=0.0.4; charset=utf-8", metrics_text(engine_->engine().stats(), stats_, model_->name()), {}}};
}

Reply Router::tokenize(const HttpRequest& request, const Wake& /*wake*/) {
  const auto parsed = parse_tokenize_request(request.body);
  if (!parsed) return refuse(parsed.error());
  if (const auto named = model_->check_name(parsed->model); !named) return refuse(named.error());
  const auto* chat = std::get_if<ChatPrompt>(&parsed->input);
  const EncodeOptions options{.add_special = parsed->add_special_tokens, .parse_special = true};
  // No limit by the context: a client may want to know how much too long its text is. The body's limit holds.
  auto tokens = chat != nullptr ? model_->encode_chat(*chat, parsed->add_special_tokens)
                                : model_->tokenizer().encode(std::get<std::string>(parsed->input), options);
  if (!tokens) return refuse(tokens.error());
  std::string strings = "null";
  if (parsed->return_token_strs) {
    strings = "[";
    for (const TokenId token : *tokens) {
      if (strings.size() > 1) strings += ',';
      append_json_string(strings, repair_utf8(model_->tokenizer().token_bytes(token)));
    }
    strings += ']';
  }
  return json_reply(fmt::format(R"({{"count":{},"max_model_len":{},"tokens":{},"token_strs":{}}})", tokens->size(), model_->max_model_len(),
                                token_list(*tokens), strings));
}

Reply Router::detokenize(const HttpRequest& request, const Wake& /*wake*/) {
  const auto parsed = parse_detokenize_request(request.body, model_->tokenizer().vocab_size());
  if (!parsed) return refuse(parsed.error());
  if (const auto named = model_->check_name(parsed->model); !named) return refuse(named.error());
  return json_reply(fmt::format(R"({{"prompt":{}}})", json_string(model_->tokenizer().decode(parsed->tokens, false))));
}

Reply Router::completions(const HttpRequest& request, const Wake& wake) {
  return complete(Api::completion, request, wake);
}

Reply Router::chat_completions(const HttpRequest& request, const Wake& wake) {
  return complete(Api::chat, request, wake);
}

std::string Router::next_id(Api api) {
  return fmt::format("{}-{:016x}{:08x}", api == Api::chat ? "chatcmpl" : "cmpl", run_id_, num_completions_++);
}

Reply Router::complete(Api api, const HttpRequest& request, const Wake& wake) {
  if (draining_) return refuse({ErrorCode::shutting_down, "", "the server is shutting down", "send the request elsewhere"});
  auto parsed = parse_completion_request(api, request.body, {options_->max_choices, model_->tokenizer().vocab_size()});
  if (!parsed) return refuse(parsed.error());
  if (const auto named = model_->check_name(parsed->model); !named) return refuse(named.error());
  auto prompts = model_->encode_prompts(*parsed);
  if (!prompts) return refuse(prompts.error());
  auto completion = Completion::start(*engine_, *model_, {std::move(*parsed), std::move(*prompts), next_id(api), now_s(), wake});
  if (!completion) return refuse(completion.error());
  return {HttpResponse{}, std::move(*completion)};
}

Reply Router::ask_engine(const Wake& wake, std::string (*body)(bool), const std::function<void(ControlAnswer)>& ask) {
  if (num_asked_ >= kMaxAsked)
    return refuse({ErrorCode::overloaded, "", fmt::format("{} operators wait for the engine already", kMaxAsked), "try again"});
  auto pending = std::make_shared<PendingResponse>();
  ++num_asked_;
  ask(engine_->on_server([this, pending, body, wake, retry_after_s = options_->retry_after_s](const Result<bool>& answer) {
    --num_asked_;
    pending->response = answer ? HttpResponse{200, "application/json", body(*answer), {}} : error_response(answer.error(), retry_after_s);
    wake();
  }));
  return {HttpResponse{}, nullptr, std::move(pending)};
}

Reply Router::reset_prefix_cache(const HttpRequest& request, const Wake& wake) {
  const auto parsed = parse_cache_reset(request);
  if (!parsed) return refuse(parsed.error());
  return ask_engine(wake, cache_reset_body,
                    [&](ControlAnswer answer) { engine_->engine().reset_prefix_cache(*parsed, std::move(answer)); });
}

Reply Router::pause(const HttpRequest& request, const Wake& wake) {
  const auto parsed = parse_pause(request);
  if (!parsed) return refuse(parsed.error());
  return ask_engine(wake, pause_body, [&](ControlAnswer answer) { engine_->engine().pause(*parsed, std::move(answer)); });
}

Reply Router::resume(const HttpRequest& request, const Wake& wake) {
  if (const auto parsed = parse_resume(request); !parsed) return refuse(parsed.error());
  return ask_engine(
      wake, [](bool) { return pause_body(false); }, [&](ControlAnswer answer) { engine_->engine().resume(std::move(answer)); });
}

Reply Router::is_paused(const HttpRequest& /*request*/, const Wake& /*wake*/) {
  return json_reply(fmt::format(R"({{"is_paused":{}}})", engine_->engine().stats().is_paused));
}

}  // namespace quire
