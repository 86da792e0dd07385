#include "server/operate/admin.h"

#include <fmt/format.h>

#include "base/json_writer.h"
#include "server/http/query.h"
#include "text/utf8.h"

namespace quire {

namespace {

std::string reset_body() {
  return json_object([](JsonWriter& json) { json.field("reset", true); });
}

}  // namespace

Result<void> admit_operator(const HttpRequest& request, const ServerOptions& options) {
  if (!request.is_local && !options.allow_remote_admin) {
    return fail(ErrorCode::invalid_argument, "", "this endpoint accepts only direct requests from the server's own machine",
                "send the request from that machine without a proxy, or start the server with --api-key and --allow-remote-admin");
  }
  // A web page in a browser on this machine could otherwise pause the engine.
  if (request.origin && options.api_key.empty())
    return fail(ErrorCode::invalid_argument, "Origin", "this endpoint does not accept requests from web pages",
                "use curl, or start the server with --api-key");
  return {};
}

Result<CacheResetOptions> parse_cache_reset(const HttpRequest& request) {
  QueryReader query(request.target);
  const CacheResetOptions options{query.boolean("reset_running_requests", false), query.boolean("reset_external", false)};
  if (const auto done = query.finish(); !done) return std::unexpected(done.error());
  return options;
}

Result<PauseOptions> parse_pause(const HttpRequest& request) {
  QueryReader query(request.target);
  PauseOptions options;
  const std::string mode = query.text("mode", "abort");
  if (mode == "wait")
    options.mode = PauseMode::wait;
  else if (mode == "keep")
    options.mode = PauseMode::keep;
  else if (mode != "abort")
    query.reject("mode", fmt::format("is '{}'", repair_utf8(mode.substr(0, 100))), "use abort, wait or keep");
  if (query.boolean("wait_for_inflight_requests", false)) options.mode = PauseMode::wait;  // an older name of mode=wait
  options.clear_cache = query.boolean("clear_cache", true);
  if (const auto done = query.finish(); !done) return std::unexpected(done.error());
  return options;
}

Result<void> parse_no_parameters(const HttpRequest& request) {
  return QueryReader(request.target).finish();
}

std::string cache_reset_body(bool was_reset) {
  return was_reset ? reset_body() : not_reset_body("requests hold blocks; wait for them, or send reset_running_requests=true");
}

std::string encoder_reset_body(bool was_reset) {
  return was_reset ? reset_body() : not_reset_body("the model does not support images, so no encoder output is cached");
}

std::string not_reset_body(std::string_view reason) {
  return json_object([&](JsonWriter& json) { json.field("reset", false).field("reason", reason); });
}

std::string pause_body(bool paused) {
  return json_object([&](JsonWriter& json) { json.field("status", paused ? "paused" : "resumed"); });
}

std::string saved_journal_body(const SavedJournal& saved) {
  return json_object([&](JsonWriter& json) {
    json.field("path", saved.path).field("bytes", saved.num_bytes).field("steps", saved.num_steps);
    json.fixed_field("seconds", saved.covered_s, 3);
  });
}

}  // namespace quire
