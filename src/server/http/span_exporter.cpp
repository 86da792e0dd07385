// Sends spans of requests to a collector (OTLP). The thread sleeps until there is a span, waits for more spans, and sends them in one
// request. Spans that the collector does not accept in time are dropped, so that an unreachable collector does not use up the server's
// memory. The engine never calls this code.
#include "server/http/span_exporter.h"

#include <fmt/format.h>

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/url/parse.hpp>
#include <utility>

#include "net/port.h"
#include "net/timed_stream.h"

namespace quire {

namespace beast = boost::beast;
namespace http = beast::http;

namespace {

constexpr std::size_t kMaxSpansPerRequest = 512;
constexpr std::uint64_t kMaxAnswerBytes = 64 << 10;
constexpr std::chrono::milliseconds kFinalSendTimeout{1000};

std::uint64_t seed() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

// Sends `body` and returns the HTTP status of the response. Returns 0 on failure, and sets `problem` unless the time limit was exceeded.
unsigned post(const SpanEndpoint& endpoint, const std::string& body, TimedStream& stream, std::string& problem) {
  boost::system::error_code code = stream.open();
  if (!code) {
    constexpr unsigned kHttp11 = 11;
    http::request<http::string_body> request(http::verb::post, endpoint.path, kHttp11);
    request.set(http::field::host, endpoint.authority);
    request.set(http::field::content_type, "application/json");
    request.keep_alive(false);
    request.body() = body;
    request.prepare_payload();
    http::write(stream, request, code);
  }
  unsigned status = 0;
  if (!code) {
    beast::flat_buffer buffer;
    http::response_parser<http::string_body> answer;
    answer.body_limit(kMaxAnswerBytes);
    http::read(stream, buffer, answer, code);
    status = answer.is_header_done() ? answer.get().result_int() : 0;
  }
  if (status == 0 && code != boost::asio::error::timed_out) problem = stream.why().empty() ? code.message() : stream.why();
  return status;
}

}  // namespace

Result<SpanEndpoint> parse_span_endpoint(const std::string& url, const char* field) {
  const auto parsed = boost::urls::parse_uri(url);
  const auto port = parsed && parsed->has_port() ? parse_port(std::string_view(parsed->port())) : std::uint16_t{80};
  const char* const example = "use a URL such as http://127.0.0.1:4318/v1/traces";
  if (!parsed || !parsed->has_authority() || parsed->has_userinfo() || parsed->has_query() || parsed->has_fragment() ||
      parsed->host_address().empty() || !port)
    return fail(ErrorCode::invalid_argument, field, fmt::format("'{}' is not a valid URL of a collector", url), example);
  if (parsed->scheme() != "http")
    return fail(ErrorCode::unsupported, field, fmt::format("'{}' is not an http URL, and only http is supported", url),
                "use a collector on this machine, which can forward spans with TLS or gRPC");
  const std::string path(parsed->encoded_path());
  return SpanEndpoint{.host = std::string(parsed->host_address()),
                      .port = *port,
                      .path = path.empty() || path == "/" ? "/v1/traces" : path,
                      .authority = std::string(parsed->encoded_host_and_port())};
}

SpanExporter::SpanExporter(Options options, Logger& logger)
    : options_(std::move(options)), logger_(&logger), random_(seed()), thread_([this](const std::stop_token& stop) { run(stop); }) {}

SpanExporter::~SpanExporter() = default;

void SpanExporter::ended(const RequestSpan& span) {
  if (span.parent && !span.parent->is_sampled) return;
  const SpanIds ids{.trace_id = fmt::format("{:016x}{:016x}", random_() | 1, random_()), .span_id = fmt::format("{:016x}", random_() | 1)};
  std::string text = span_json(span, ids, options_.model);
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= options_.max_waiting) {
      ++num_dropped_;
      return;
    }
    waiting_.push_back(std::move(text));
  }
  queue_changed_.notify_one();
}

void SpanExporter::run(const std::stop_token& stop) {
  for (bool is_last = false; !is_last;) {
    is_last = stop.stop_requested();
    std::vector<std::string> spans;
    {
      std::unique_lock lock(mutex_);
      queue_changed_.wait(lock, stop, [this] { return !waiting_.empty(); });
      queue_changed_.wait_for(lock, stop, options_.delay, [this] { return waiting_.size() >= kMaxSpansPerRequest; });
      spans.swap(waiting_);
    }
    if (!spans.empty()) send(spans, is_last ? kFinalSendTimeout : options_.send_timeout);
  }
}

void SpanExporter::send(const std::vector<std::string>& spans, std::chrono::milliseconds timeout) {
  std::string problem = "no answer within the time limit";
  const NetAddress address{.host = options_.endpoint.host, .port = options_.endpoint.port, .unix_path = {}, .is_tls = false};
  TimedStream stream(std::chrono::steady_clock::now() + timeout, address, std::make_shared<const NetTls>());
  const unsigned status = post(options_.endpoint, spans_body(spans, options_.service), stream, problem);
  constexpr unsigned kOk = 200, kRedirect = 300;
  const bool taken = status >= kOk && status < kRedirect;
  (taken ? num_sent_ : num_dropped_) += spans.size();
  log_outcome(taken, status == 0 ? problem : fmt::format("status {}", status));
}

void SpanExporter::log_outcome(bool works, const std::string& problem) {
  if (std::exchange(last_send_succeeded_, works) == works) return;
  if (works)
    logger_->write(LogLevel::info, "spans_sent_again", {{"endpoint", options_.endpoint.authority}});
  else
    logger_->write(LogLevel::warn, "spans_lost", {{"endpoint", options_.endpoint.authority}, {"why", problem}});
}

}  // namespace quire
