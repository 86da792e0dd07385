#include "server/http/request_log.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace quire {
namespace {

// Returns the beginning of a field's path that consists of characters of names. A client chooses the keys of its body, so a path may
// contain any text.
std::string_view path_part(std::string_view param) {
  constexpr std::string_view kNames = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.[]";
  constexpr std::size_t kMaxBytes = 100;
  return param.substr(0, std::min(param.find_first_not_of(kNames), kMaxBytes));
}

}  // namespace

void RequestLog::ended(const EndedRequest& request) {
  const double ms = std::chrono::duration<double, std::milli>(request.duration).count();
  const bool is_slow = slow_ms_ > 0 && ms >= slow_ms_;
  const bool is_overload = request.status == 429 || request.status == 503;
  // Polls of /health and /metrics carry no information, and many refusals would hide the other lines.
  const bool is_quiet = is_overload || (request.method == "GET" && request.status == 200);
  const LogLevel level = is_slow ? LogLevel::warn : is_quiet ? LogLevel::debug : LogLevel::info;
  std::vector<LogField> fields = {{"id", request.id},         {"answer_id", request.answer_id}, {"peer", request.peer},
                                  {"method", request.method}, {"path", request.path},           {"status", std::uint64_t{request.status}}};
  if (!request.error_code.empty()) {
    fields.push_back({"code", request.error_code});
    if (const std::string_view param = path_part(request.error_param); !param.empty()) fields.push_back({"param", param});
  } else if (request.method == "POST") {
    fields.push_back({"prompt_tokens", request.prompt_tokens});
    fields.push_back({"cached_tokens", request.cached_tokens});
    fields.push_back({"output_tokens", request.output_tokens});
  }
  fields.push_back({"ms", ms});
  logger_->write_fields(level, is_slow ? "slow_request" : "request", fields);
  if (is_overload) log_rejected(request);
  if (spans_ != nullptr && request.method == "POST") trace(request);
}

void RequestLog::trace(const EndedRequest& request) {
  RequestSpan span{
      .request_id = std::string(request.id),
      .answer_id = std::string(request.answer_id),
      .method = std::string(request.method),
      .path = std::string(request.path),
      .status = request.status,
      .parent = {},
      .begin = std::chrono::system_clock::now() - std::chrono::duration_cast<std::chrono::system_clock::duration>(request.duration),
      .duration = request.duration,
      .tokens = {.prompt = request.prompt_tokens, .cached = request.cached_tokens, .output = request.output_tokens},
      .progress = {}};
  if (request.trace != nullptr) span.parent = *request.trace;
  if (request.progress != nullptr) span.progress = *request.progress;
  spans_->ended(span);
}

void RequestLog::ignored(std::string_view id, std::string_view fields) {
  logger_->write(LogLevel::info, "ignored_fields", {{"id", id}, {"fields", fields}});
}

void RequestLog::log_rejected(const EndedRequest& request) {
  ++num_rejected_;
  const auto now = std::chrono::steady_clock::now();
  if (last_overload_ != std::chrono::steady_clock::time_point{} && now - last_overload_ < std::chrono::seconds(1)) return;
  last_overload_ = now;
  logger_->write(LogLevel::warn, "overload",
                 {{"status", std::uint64_t{request.status}}, {"path", request.path}, {"requests", std::exchange(num_rejected_, 0)}});
}

void RequestLog::failed(std::string_view id, const std::exception_ptr& failure) {
  std::string what;
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& known) {
    what = known.what();
  } catch (...) {
    what = "an exception of a type other than std::exception";
  }
  logger_->write(LogLevel::error, "exception", {{"id", id}, {"what", what}});
}

}  // namespace quire
