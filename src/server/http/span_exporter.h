#pragma once
// Sends spans of requests to an OpenTelemetry collector, as OTLP over HTTP in JSON, from a separate thread.
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

// The address of a collector. TLS is not supported; use a collector on this machine to forward spans over TLS.
struct SpanEndpoint {
  std::string host;  // host for the name lookup; IPv6 without brackets
  std::uint16_t port = 80;
  std::string path;
  std::string authority;  // value of the Host header
};

// Parses a URL such as "http://127.0.0.1:4318/v1/traces". The default path is /v1/traces. Errors name `field`.
[[nodiscard]] Result<SpanEndpoint> parse_span_endpoint(const std::string& url, const char* field);

// Sends spans from a separate thread. The queue of spans is bounded: if the collector is slow or unreachable, spans are dropped and
// counted, and no other thread waits for the collector.
class SpanExporter {
 public:
  struct Options {
    SpanEndpoint endpoint;
    std::string model, service;
    std::size_t max_waiting = 4096;                // spans in the queue
    std::chrono::milliseconds delay{1000};         // a span waits this long for more spans, which are sent together with it
    std::chrono::milliseconds send_timeout{5000};  // for one request to the collector
  };

  // `logger` must outlive this object. It gets a line when sending begins to fail, and another when sending works again.
  SpanExporter(Options options, Logger& logger);
  // Sends the waiting spans; gives up after a second.
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  // Queues the span of an ended request. Called on the server's thread. If the client's trace is not sampled, the span is not sent either.
  void ended(const RequestSpan& span);

  // May be called on any thread.
  [[nodiscard]] std::uint64_t num_sent() const { return num_sent_; }
  [[nodiscard]] std::uint64_t num_dropped() const { return num_dropped_; }

 private:
  void run(const std::stop_token& stop);
  void send(const std::vector<std::string>& spans, std::chrono::milliseconds timeout);
  void log_outcome(bool works, const std::string& problem);

  Options options_;
  Logger* logger_;
  std::mt19937_64 random_;  // used on the server's thread
  std::mutex mutex_;
  std::condition_variable_any queue_changed_;
  std::vector<std::string> waiting_;  // guarded by `mutex_`
  bool last_send_succeeded_ = true;   // used on the exporter's thread
  std::atomic<std::uint64_t> num_sent_{0}, num_dropped_{0};
  std::jthread thread_;  // last, because the thread uses all other members
};

}  // namespace quire
