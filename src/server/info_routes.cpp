// The router's part of what is known without asking the model: pages, health, names, metrics.
#include <fmt/format.h>

#include "base/json_text.h"
#include "quire/version.h"
#include "server/http/error_response.h"
#include "server/operate/api_page.h"
#include "server/operate/cache_status.h"
#include "server/operate/chat_page.h"
#include "server/router.h"

namespace quire {
namespace {

// A page asks nobody but this server.
Reply page_reply(std::string_view html) {
  Reply reply{HttpResponse{200, "text/html; charset=utf-8", std::string(html), {}}};
  reply.response.headers = {{"Content-Security-Policy",
                             "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
                             "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
                            {"Cache-Control", "no-cache"}};
  return reply;
}

}  // namespace

Reply Router::json_reply(std::string body) {
  return {HttpResponse{200, "application/json", std::move(body), {}}};
}

Reply Router::chat_page(HttpRequest& /*request*/, const Wake& /*wake*/) {
  return page_reply(chat_page_html());
}

Reply Router::api_page(HttpRequest& /*request*/, const Wake& /*wake*/) {
  return page_reply(api_page_html());
}

Reply Router::openapi(HttpRequest& /*request*/, const Wake& /*wake*/) {
  return json_reply(std::string(openapi_json()));
}

Reply Router::health(HttpRequest& /*request*/, const Wake& /*wake*/) {
  if (draining_) return refuse({ErrorCode::shutting_down, "", "the server is shutting down", ""});
  return json_reply(R"({"status":"ok"})");
}

Reply Router::ready(HttpRequest& /*request*/, const Wake& /*wake*/) {
  if (draining_) return refuse({ErrorCode::shutting_down, "", "the server is shutting down", ""});
  if (engine_->engine().stats().is_paused)
    return {error_response(503, {ErrorCode::overloaded, "", "the engine is paused", "POST /resume"}, options_->retry_after_s)};
  return json_reply(R"({"status":"ready"})");
}

Reply Router::version(HttpRequest& /*request*/, const Wake& /*wake*/) {
  return json_reply(fmt::format(R"({{"version":"{}"}})", kVersion));
}

Reply Router::models(HttpRequest& /*request*/, const Wake& /*wake*/) {
  std::string data;
  for (const std::string& name : model_->names()) {
    fmt::format_to(std::back_inserter(data),
                   R"({}{{"id":{},"object":"model","created":{},"owned_by":"quire","root":{},"parent":null,"max_model_len":{}}})",
                   data.empty() ? "" : ",", json_string(name), started_s_, json_string(engine_->engine().model().name),
                   model_->max_model_len());
  }
  return json_reply(fmt::format(R"({{"object":"list","data":[{}]}})", data));
}

Reply Router::metrics(HttpRequest& /*request*/, const Wake& /*wake*/) {
  stats_.log_lines_dropped_total = log_.logger().num_dropped();
  return {
      HttpResponse{200, "text/plain; version=0.0.4; charset=utf-8", metrics_text(engine_->engine().stats(), stats_, model_->name()), {}}};
}

Reply Router::cache(HttpRequest& /*request*/, const Wake& /*wake*/) {
  return json_reply(cache_status(engine_->engine().stats(), engine_->engine().options().cache.block_size));
}

// As vLLM's: what a client needs that renders or counts by itself.
Reply Router::tokenizer_info(HttpRequest& /*request*/, const Wake& /*wake*/) {
  const auto text_or_null = [](const std::string& text) { return text.empty() ? std::string("null") : json_string(text); };
  return json_reply(
      fmt::format(R"({{"tokenizer_class":"quire","vocab_size":{},"model_max_length":{},"bos_token":{},"eos_token":{},"chat_template":{}}})",
                  model_->tokenizer().vocab_size(), model_->max_model_len(), text_or_null(model_->bos()), text_or_null(model_->eos()),
                  text_or_null(model_->chat_template())));
}

}  // namespace quire
