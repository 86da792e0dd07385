#pragma once
// Reports the outcome of requests: one log line per request, at most one line per second about refused requests, and a trace span per POST
// request if there is a collector.
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "quire/base/logger.h"
#include "server/http/reply.h"
#include "server/http/span_exporter.h"
#include "server/http/trace_context.h"

namespace quire {

// The status that is logged if the client disconnects before the answer is complete. Never sent. nginx uses the same number.
inline constexpr unsigned kClientGone = 499;

struct EndedRequest {
  std::string_view id;         // the client's X-Request-Id, or the server's id
  std::string_view answer_id;  // the answer's id without its prefix; empty: the head was not read
  std::string_view peer;       // IP address
  std::string_view method;
  std::string_view path;                             // without the query, which may contain secrets
  const TraceContext* trace = nullptr;               // trace context of the client; null: none
  const AnswerSource::Progress* progress = nullptr;  // null: no tokens were sampled
  unsigned status = 0;
  std::string_view error_code{};    // empty: not an error
  std::string_view error_param{};   // path of the field that the error is about; empty: the error is about no field
  std::uint64_t prompt_tokens = 0;  // 0 if no prompt was submitted
  std::uint64_t cached_tokens = 0;  // prompt tokens found in the prefix cache
  std::uint64_t output_tokens = 0;
  std::chrono::steady_clock::duration duration{};
};

// Used on the server's thread only.
class RequestLog {
 public:
  // `logger` must outlive this object. Requests that take at least `slow_ms` are logged as warnings; 0: no warnings. `spans` is null if
  // there is no collector.
  RequestLog(Logger& logger, std::uint32_t slow_ms, std::unique_ptr<SpanExporter> spans = nullptr)
      : logger_(&logger), slow_ms_(slow_ms), spans_(std::move(spans)) {}

  void ended(const EndedRequest& request);
  // Logs the names of fields that do not change the answer.
  void ignored(std::string_view id, std::string_view fields);
  // Logs an exception that a handler has thrown.
  void failed(std::string_view id, const std::exception_ptr& failure);

  [[nodiscard]] Logger& logger() { return *logger_; }
  // Returns null if there is no collector.
  [[nodiscard]] const SpanExporter* spans() const { return spans_.get(); }

 private:
  void log_rejected(const EndedRequest& request);
  void trace(const EndedRequest& request);

  Logger* logger_;
  std::uint32_t slow_ms_;
  std::unique_ptr<SpanExporter> spans_;
  std::chrono::steady_clock::time_point last_overload_{};
  std::uint64_t num_rejected_ = 0;  // not reported in a log line yet
};

}  // namespace quire
