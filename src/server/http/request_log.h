#pragma once
// What becomes of requests: a log line for each that has ended, and one a second at most for those that were turned away; and a span for
// each that asked something of an API, where somebody collects them.
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

// Status of requests whose client left before the answer was complete; never sent. (nginx's number.)
inline constexpr unsigned kClientGone = 499;

struct EndedRequest {
  std::string_view id;
  std::string_view peer;  // IP address
  std::string_view method;
  std::string_view path;                             // without the query, which may hold anything
  const TraceContext* trace = nullptr;               // its client's; null: none
  const AnswerSource::Progress* progress = nullptr;  // null: it drew no tokens
  unsigned status = 0;
  std::uint64_t prompt_tokens = 0;  // 0 where none were submitted
  std::uint64_t cached_tokens = 0;  // of these, found in the prefix cache
  std::uint64_t output_tokens = 0;
  std::chrono::steady_clock::duration duration{};
};

// Server's thread only.
class RequestLog {
 public:
  // `logger` must outlive this. Requests of `slow_ms` and more are warnings; 0: none are. `spans`: null, nobody collects them.
  RequestLog(Logger& logger, std::uint32_t slow_ms, std::unique_ptr<SpanExporter> spans = nullptr)
      : logger_(&logger), slow_ms_(slow_ms), spans_(std::move(spans)) {}

  void ended(const EndedRequest& request);
  // Names of fields that do not change its answer.
  void ignored(std::string_view id, std::string_view fields);
  // An exception that a handler threw.
  void failed(std::string_view id, const std::exception_ptr& failure);

  [[nodiscard]] Logger& logger() { return *logger_; }
  // Null: nobody collects them.
  [[nodiscard]] const SpanExporter* spans() const { return spans_.get(); }

 private:
  void turned_away(const EndedRequest& request);
  void trace(const EndedRequest& request);

  Logger* logger_;
  std::uint32_t slow_ms_;
  std::unique_ptr<SpanExporter> spans_;
  std::chrono::steady_clock::time_point last_overload_{};
  std::uint64_t num_turned_away_ = 0;  // since the last line about them
};

}  // namespace quire
