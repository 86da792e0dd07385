#pragma once
// Sends spans of requests to a collector of OpenTelemetry, as OTLP over HTTP in JSON, from a thread of its own.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "quire/base/error.h"
#include "quire/base/logger.h"
#include "server/http/span_json.h"

namespace quire {

// Where spans go. Over TLS: not; a collector on this machine speaks it to others.
struct SpanEndpoint {
  std::string host;  // as it is looked up: no brackets
  std::uint16_t port = 80;
  std::string path;
  std::string authority;  // for the header Host
};

// "http://127.0.0.1:4318/v1/traces"; without a path, that one. `field` is whom the error names.
[[nodiscard]] Result<SpanEndpoint> parse_span_endpoint(const std::string& url, const char* field);

// What waits is bounded: where the collector is slow or gone, spans are dropped and counted, and nobody waits for it.
class SpanExporter {
 public:
  struct Options {
    SpanEndpoint endpoint;
    std::string model, service;
    std::size_t max_waiting = 4096;                // spans
    std::chrono::milliseconds delay{1000};         // that spans wait for others to go with them
    std::chrono::milliseconds send_timeout{5000};  // of a request to the collector
  };

  // `logger` must outlive this: a line where sending begins to fail, and one where it works again.
  SpanExporter(Options options, Logger& logger);
  // Sends what waits, within a second.
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  // Server's thread. A trace that its client does not record is not recorded here either.
  void ended(const RequestSpan& span);

  // Any thread.
  [[nodiscard]] std::uint64_t num_sent() const { return num_sent_; }
  [[nodiscard]] std::uint64_t num_dropped() const { return num_dropped_; }

 private:
  void run(const std::stop_token& stop);
  void send(const std::vector<std::string>& spans, std::chrono::milliseconds timeout);
  void note(bool works, const std::string& problem);

  Options options_;
  Logger* logger_;
  std::mt19937_64 random_;  // server's thread
  std::mutex mutex_;
  std::condition_variable_any news_;
  std::vector<std::string> waiting_;  // under the mutex
  bool works_ = true;                 // the exporter's thread
  std::atomic<std::uint64_t> num_sent_{0}, num_dropped_{0};
  std::jthread thread_;  // last: it uses all of these
};

}  // namespace quire
