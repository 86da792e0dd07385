// Routes for operators: pages, health, metrics, and calls to the engine (reset, pause, resume, saved journals, adapters). Runs on the
// server's thread. A call to the engine is answered when the engine has executed it; at most kMaxPendingCalls calls wait at one time.
#include "server/operate/operate_routes.h"

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "quire/base/version.h"
#include "server/api/serving.h"
#include "server/http/error_response.h"
#include "server/operate/adapters.h"
#include "server/operate/admin.h"
#include "server/operate/api_page.h"
#include "server/operate/cache_curve.h"
#include "server/operate/cache_status.h"
#include "server/operate/chat_page.h"
#include "server/operate/dashboard_page.h"
#include "server/operate/explanation.h"
#include "server/operate/metrics.h"
#include "server/operate/page_reply.h"
#include "server/operate/watch.h"
#include "server/request/served_model.h"

namespace quire {

namespace {

// Maximum number of unanswered calls to the engine, including pauses whose clients have disconnected.
constexpr std::uint32_t kMaxPendingCalls = 64;

Route page_route(std::string_view path, std::string_view html) {
  return {path, "GET", Access::open, [html, policy = page_policy(html)](HttpRequest&, const Wake&) { return page_reply(html, policy); }};
}

Reply health(const Serving& serving) {
  if (serving.is_draining()) return serving.refuse({ErrorCode::shutting_down, "", "the server is shutting down", ""});
  return Serving::json_reply([](JsonWriter& json) { json.field("status", "ok"); });
}

Reply ready(Serving& serving) {
  if (serving.is_draining()) return serving.refuse({ErrorCode::shutting_down, "", "the server is shutting down", ""});
  const EngineStats engine = serving.engine().engine().stats();
  if (engine.is_stopping) return serving.refuse({ErrorCode::shutting_down, "", "the engine has been stopped", "restart the server"});
  if (engine.is_paused)
    return {error_response(503, {ErrorCode::overloaded, "", "the engine is paused", "send POST /resume"}, serving.options().retry_after_s)};
  return Serving::json_reply([](JsonWriter& json) { json.field("status", "ready"); });
}

// vLLM caches preprocessed images. quire has no such cache: it decodes an image for one request only.
Reply reset_mm_cache(const Serving& serving, const HttpRequest& request) {
  if (const auto parsed = parse_no_parameters(request); !parsed) return serving.refuse(parsed.error());
  return Serving::json_reply(not_reset_body("decoded images are not cached; POST /reset_encoder_cache clears the encoder outputs"));
}

Reply metrics(Serving& serving) {
  serving.stats().log_lines_dropped_total = serving.log().logger().num_dropped();
  if (const SpanExporter* spans = serving.log().spans()) {
    serving.stats().spans_sent_total = spans->num_sent();
    serving.stats().spans_dropped_total = spans->num_dropped();
  }
  return {HttpResponse{200,
                       "text/plain; version=0.0.4; charset=utf-8",
                       metrics_text(serving.engine().engine().stats(), serving.stats(), serving.model().name()),
                       {}}};
}

// Calls engine functions for operators. A reply is ready when the engine has executed the call. Used on the server's thread only.
class Operator {
 public:
  explicit Operator(Serving& serving) : serving_(&serving) {}

  Reply reset_prefix_cache(const HttpRequest& request, const Wake& wake);
  Reply reset_encoder_cache(const HttpRequest& request, const Wake& wake);
  Reply pause(const HttpRequest& request, const Wake& wake);
  Reply resume(const HttpRequest& request, const Wake& wake);
  Reply save_journal(const HttpRequest& request, const Wake& wake);
  [[nodiscard]] Reply is_paused() const;

 private:
  [[nodiscard]] std::optional<Reply> too_many_wait() const;
  // Calls the engine. `ask` must pass its argument as the callback to a function of the engine. `body` returns the body of the response.
  Reply call_engine(const Wake& wake, std::string (*body)(bool), const std::function<void(ControlCallback)>& ask);
  [[nodiscard]] Engine& engine() const { return serving_->engine().engine(); }

  Serving* serving_;
  std::uint32_t num_pending_calls_ = 0;  // calls that the engine has not executed yet
};

// Returns a refusal if too many calls wait for the engine. Not used for resume(), which is answered immediately and ends the waiting of
// pauses.
std::optional<Reply> Operator::too_many_wait() const {
  if (num_pending_calls_ < kMaxPendingCalls) return std::nullopt;
  return serving_->refuse(
      {ErrorCode::overloaded, "", fmt::format("{} operator requests are already waiting for the engine", kMaxPendingCalls), "try again"});
}

Reply Operator::call_engine(const Wake& wake, std::string (*body)(bool), const std::function<void(ControlCallback)>& ask) {
  auto pending = std::make_shared<PendingReply>();
  ++num_pending_calls_;
  ask(serving_->engine().on_server<bool>([this, pending, body, wake](const Result<bool>& answer) {
    --num_pending_calls_;
    pending->reply = answer ? Serving::json_reply(body(*answer)) : serving_->refuse(answer.error());
    wake();
  }));
  return {HttpResponse{}, nullptr, std::move(pending)};
}

Reply Operator::reset_prefix_cache(const HttpRequest& request, const Wake& wake) {
  const auto parsed = parse_cache_reset(request);
  if (!parsed) return serving_->refuse(parsed.error());
  if (auto refusal = too_many_wait()) return *std::move(refusal);
  return call_engine(wake, cache_reset_body, [&](ControlCallback answer) { engine().reset_prefix_cache(*parsed, std::move(answer)); });
}

Reply Operator::reset_encoder_cache(const HttpRequest& request, const Wake& wake) {
  if (const auto parsed = parse_no_parameters(request); !parsed) return serving_->refuse(parsed.error());
  if (auto refusal = too_many_wait()) return *std::move(refusal);
  return call_engine(wake, encoder_reset_body, [&](ControlCallback answer) { engine().reset_encoder_cache(std::move(answer)); });
}

Reply Operator::pause(const HttpRequest& request, const Wake& wake) {
  const auto parsed = parse_pause(request);
  if (!parsed) return serving_->refuse(parsed.error());
  if (auto refusal = too_many_wait()) return *std::move(refusal);
  return call_engine(wake, pause_body, [&](ControlCallback answer) { engine().pause(*parsed, std::move(answer)); });
}

Reply Operator::resume(const HttpRequest& request, const Wake& wake) {
  if (const auto parsed = parse_no_parameters(request); !parsed) return serving_->refuse(parsed.error());
  return call_engine(wake, [](bool) { return pause_body(false); }, [&](ControlCallback answer) { engine().resume(std::move(answer)); });
}

Reply Operator::save_journal(const HttpRequest& request, const Wake& wake) {
  if (const auto parsed = parse_no_parameters(request); !parsed) return serving_->refuse(parsed.error());
  if (auto refusal = too_many_wait()) return *std::move(refusal);
  auto pending = std::make_shared<PendingReply>();
  ++num_pending_calls_;
  engine().save_journal(serving_->engine().on_server<SavedJournal>([this, pending, wake](const Result<SavedJournal>& saved) {
    --num_pending_calls_;
    pending->reply = saved ? Serving::json_reply(saved_journal_body(*saved)) : serving_->refuse(saved.error());
    wake();
  }));
  return {HttpResponse{}, nullptr, std::move(pending)};
}

Reply Operator::is_paused() const {
  return Serving::json_reply([&](JsonWriter& json) { json.field("is_paused", engine().stats().is_paused); });
}

}  // namespace

ApiRoutes operate_routes(Serving& serving) {
  const auto cache = [&serving](HttpRequest&, const Wake&) {
    const Engine& engine = serving.engine().engine();
    return Serving::json_reply(cache_status(engine.stats(), engine.options().cache.block_size));
  };
  const auto desk = std::make_shared<Operator>(serving);
  const auto watch_route = std::make_shared<WatchRoute>(serving);
  return {.routes = {
              page_route("/", chat_page_html()),
              page_route("/docs", api_page_html()),
              page_route("/dashboard", dashboard_page_html()),
              {"/v1/watch", "GET", Access::admin,
               [watch_route](HttpRequest& request, const Wake& wake) { return watch_route->handle(request, wake); }},
              {"/openapi.json", "GET", Access::open,
               [](HttpRequest&, const Wake&) { return Serving::json_reply(std::string(openapi_json())); }},
              {"/health", "GET", Access::open, [&serving](HttpRequest&, const Wake&) { return health(serving); }},
              {"/ready", "GET", Access::open, [&serving](HttpRequest&, const Wake&) { return ready(serving); }},
              {"/version", "GET", Access::key,
               [](HttpRequest&, const Wake&) { return Serving::json_reply([](JsonWriter& json) { json.field("version", kVersion); }); }},
              {"/metrics", "GET", Access::server_key, [&serving](HttpRequest&, const Wake&) { return metrics(serving); }},
              {"/v1/cache", "GET", Access::server_key, cache},
              {kCurvePath, "GET", Access::key,
               [&serving](HttpRequest& request, const Wake& wake) { return show_cache_curve(serving, request, wake); }},
              {kExplainPath, "GET", Access::key,
               [&serving](HttpRequest& request, const Wake& wake) { return explain_request(serving, request, wake); }},
              {"/reset_prefix_cache", "POST", Access::admin,
               [desk](HttpRequest& request, const Wake& wake) { return desk->reset_prefix_cache(request, wake); }},
              {"/reset_encoder_cache", "POST", Access::admin,
               [desk](HttpRequest& request, const Wake& wake) { return desk->reset_encoder_cache(request, wake); }},
              {"/reset_mm_cache", "POST", Access::admin,
               [&serving](HttpRequest& request, const Wake&) { return reset_mm_cache(serving, request); }},
              {"/pause", "POST", Access::admin, [desk](HttpRequest& request, const Wake& wake) { return desk->pause(request, wake); }},
              {"/resume", "POST", Access::admin, [desk](HttpRequest& request, const Wake& wake) { return desk->resume(request, wake); }},
              {"/v1/journal/save", "POST", Access::admin,
               [desk](HttpRequest& request, const Wake& wake) { return desk->save_journal(request, wake); }},
              {"/v1/load_lora_adapter", "POST", Access::admin,
               [&serving](HttpRequest& request, const Wake& wake) { return load_adapter(serving, request, wake); }},
              {"/v1/unload_lora_adapter", "POST", Access::admin,
               [&serving](HttpRequest& request, const Wake& wake) { return unload_adapter(serving, request, wake); }},
              {"/is_paused", "GET", Access::admin, [desk](HttpRequest&, const Wake&) { return desk->is_paused(); }},
          }};
}

}  // namespace quire
