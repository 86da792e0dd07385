// Tests the spans of requests: their contents, how they continue a client's trace, and that no request waits for a collector.
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <boost/json.hpp>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "server/http/span_exporter.h"
#include "server/http/trace_context.h"
#include "server/running_server.h"
#include "support/pipe.h"

namespace quire {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr const char* kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr const char* kParent = "00f067aa0ba902b7";

TEST(TraceContext, ParsesTheW3cFormat) {
  const std::string ids = std::string(kTrace) + "-" + kParent;
  const auto context = parse_traceparent("00-" + ids + "-01");
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(context->trace_id, kTrace);
  EXPECT_EQ(context->parent_id, kParent);
  EXPECT_TRUE(context->is_sampled);
  EXPECT_FALSE(parse_traceparent("00-" + ids + "-00")->is_sampled);
  EXPECT_TRUE(parse_traceparent("00-" + ids + "-ff")->is_sampled) << "other flags do not matter";
  EXPECT_TRUE(parse_traceparent("cc-" + ids + "-01").has_value());
  EXPECT_TRUE(parse_traceparent("cc-" + ids + "-01-what-comes-later").has_value());
  for (const std::string& wrong :
       {std::string(), "00-" + ids + "-0", "00-" + ids + "-01-more", "ff-" + ids + "-01", "cc-" + ids + "-01.more", "0-" + ids + "-011",
        "00-" + ids + "-0x", "00-4BF92F3577B34DA6A3CE929D0E0E4736-" + std::string(kParent) + "-01",
        "00-" + std::string(32, '0') + "-" + kParent + "-01", "00-" + std::string(kTrace) + "-" + std::string(16, '0') + "-01",
        "00_" + ids + "-01"})
    EXPECT_FALSE(parse_traceparent(wrong).has_value()) << wrong;
}

TEST(SpanEndpoint, ParsesSupportedUrls) {
  const auto plain = parse_span_endpoint("http://127.0.0.1:4318", "endpoint").value();
  EXPECT_EQ(plain.host, "127.0.0.1");
  EXPECT_EQ(plain.port, 4318U);
  EXPECT_EQ(plain.path, "/v1/traces");
  EXPECT_EQ(parse_span_endpoint("http://[::1]:4318/otlp", "endpoint").value().host, "::1");
  EXPECT_EQ(parse_span_endpoint("http://[::1]:4318/otlp", "endpoint").value().path, "/otlp");
  EXPECT_EQ(parse_span_endpoint("http://collector", "endpoint").value().port, 80U);
  for (const char* wrong :
       {"", "127.0.0.1:4318", "collector", "http://", "http://user@host", "http://host/?x=1", "http://host:99999", "http://host:0"})
    EXPECT_EQ(parse_span_endpoint(wrong, "endpoint").error().code, ErrorCode::invalid_argument) << wrong;
  for (const char* other : {"https://host", "grpc://host:4317"})
    EXPECT_EQ(parse_span_endpoint(other, "endpoint").error().code, ErrorCode::unsupported) << other;
}

// Accepts this number of requests, one after the other, and answers each with the status.
class Collector {
 public:
  Collector(unsigned num_requests, http::status status) : Collector(std::vector(num_requests, status)) {}
  // Answers the i-th request with statuses[i].
  explicit Collector(const std::vector<http::status>& statuses) : thread_([this, statuses] { run(statuses); }) {}
  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port()); }
  // Waits for all requests and returns their spans.
  std::vector<boost::json::object> spans() {
    thread_.join();
    return std::move(spans_);
  }
  ~Collector() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run(const std::vector<http::status>& statuses) {
    for (const http::status status : statuses) {
      asio::ip::tcp::socket socket = acceptor_.accept();
      boost::beast::flat_buffer buffer;
      http::request<http::string_body> request;
      http::read(socket, buffer, request);
      EXPECT_EQ(request.target(), "/v1/traces");
      EXPECT_EQ(request[http::field::content_type], "application/json");
      const auto body = boost::json::parse(request.body());
      const auto& resource = body.at("resourceSpans").as_array().at(0);
      EXPECT_EQ(resource.at("resource").at("attributes").at(0).at("value").at("stringValue"), "quire");
      for (const auto& span : resource.at("scopeSpans").at(0).at("spans").as_array()) spans_.push_back(span.as_object());
      http::write(socket, http::response<http::string_body>(status, 11, "{}"));
    }
  }

  asio::io_context io_;
  asio::ip::tcp::acceptor acceptor_{io_, {asio::ip::address_v4::loopback(), 0}};
  std::vector<boost::json::object> spans_;
  std::thread thread_;
};

std::map<std::string, boost::json::object> attributes_of(const boost::json::object& span) {
  std::map<std::string, boost::json::object> attributes;
  for (const auto& attribute : span.at("attributes").as_array())
    attributes.emplace(attribute.at("key").as_string(), attribute.at("value").as_object());
  return attributes;
}

class SpansTest : public RunningServer {};

TEST_F(SpansTest, HaveVllmsAttributes) {
  engine.answer_with("answer-text");
  Collector collector(1, http::status::ok);
  start({.otlp_traces_endpoint = collector.url()});
  const std::string trace = std::string("traceparent: 00-") + kTrace + "-" + kParent + "-01\r\n";
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "prompt-text", "temperature": 0.7, "max_tokens": 20})", trace).status, 200U);
  EXPECT_EQ(HttpClient(port).get("/health").status, 200U) << "it is not an API request";
  stop_and_flush();
  const auto spans = collector.spans();
  ASSERT_EQ(spans.size(), 1U);
  const boost::json::object& span = spans.front();
  EXPECT_EQ(span.at("traceId"), kTrace);
  EXPECT_EQ(span.at("parentSpanId"), kParent);
  EXPECT_EQ(span.at("spanId").as_string().size(), 16U);
  EXPECT_EQ(span.at("name"), "llm_request");
  EXPECT_GE(std::stoull(span.at("endTimeUnixNano").as_string().c_str()), std::stoull(span.at("startTimeUnixNano").as_string().c_str()));
  auto attributes = attributes_of(span);
  EXPECT_EQ(attributes["gen_ai.usage.prompt_tokens"]["intValue"], "11");
  EXPECT_EQ(attributes["gen_ai.usage.completion_tokens"]["intValue"], "12");
  EXPECT_EQ(attributes["gen_ai.usage.cache_read.input_tokens"]["intValue"], "16");
  EXPECT_EQ(attributes["gen_ai.request.max_tokens"]["intValue"], "20");
  EXPECT_EQ(attributes["gen_ai.request.n"]["intValue"], "1");
  EXPECT_DOUBLE_EQ(attributes["gen_ai.request.temperature"]["doubleValue"].to_number<double>(), 0.7);
  EXPECT_EQ(attributes["http.response.status_code"]["intValue"], "200");
  const auto seconds = [&](const char* name) { return attributes[name]["doubleValue"].to_number<double>(); };
  EXPECT_GT(seconds("gen_ai.latency.time_to_first_token"), 0.0);
  EXPECT_LE(seconds("gen_ai.latency.time_to_first_token"), seconds("gen_ai.latency.e2e"));
  EXPECT_GE(seconds("gen_ai.latency.time_in_model_prefill"), 0.0);
  EXPECT_GE(seconds("gen_ai.latency.time_in_model_decode"), 0.0);
  const std::string text = boost::json::serialize(span);
  for (const char* secret : {"prompt-text", "answer-text"}) EXPECT_EQ(text.find(secret), std::string::npos) << secret;
}

TEST_F(SpansTest, AreSentForRefusalsButNotForUnsampledRequests) {
  Collector collector(1, http::status::ok);
  start({.api_key = "key", .otlp_traces_endpoint = collector.url()});
  const std::string unsampled = std::string("traceparent: 00-") + kTrace + "-" + kParent + "-00\r\n";
  EXPECT_EQ(post("/v1/completions", "{}", unsampled).status, 401U);
  EXPECT_EQ(post("/v1/completions", "{}").status, 401U);
  stop_and_flush();
  const auto spans = collector.spans();
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(spans.front().at("traceId").as_string().size(), 32U);
  EXPECT_EQ(spans.front().at("parentSpanId"), "");
  EXPECT_EQ(attributes_of(spans.front())["http.response.status_code"]["intValue"], "401");
}

TEST_F(SpansTest, UnreachableCollectorLosesSpansOnly) {
  std::string url;
  {
    Collector collector(0, http::status::ok);
    url = collector.url();
  }
  engine.answer_with("text");
  start({.otlp_traces_endpoint = url});
  for (int i = 0; i < 20; ++i) EXPECT_EQ(post("/v1/completions", R"({"prompt": "text"})").status, 200U);
  stop_and_flush();
}

RequestSpan span_of(const std::string& id) {
  return {.request_id = id,
          .answer_id = id,
          .method = "POST",
          .path = "/v1/completions",
          .status = 200,
          .parent = {},
          .begin = {},
          .tokens = {},
          .progress = {}};
}

TEST(SpanExporter, DropsSpansOverItsCapacityAndFlushesAtTheEnd) {
  Logger logger({.level = LogLevel::off});
  Collector collector(1, http::status::ok);
  {
    SpanExporter exporter({.endpoint = parse_span_endpoint(collector.url(), "endpoint").value(),
                           .model = "m",
                           .service = "quire",
                           .max_waiting = 10,
                           .delay = std::chrono::hours(1)},
                          logger);
    for (int i = 0; i < 15; ++i) exporter.ended(span_of(std::to_string(i)));
    EXPECT_EQ(exporter.num_dropped(), 5U);
  }
  EXPECT_EQ(collector.spans().size(), 10U);
}

TEST(SpanExporter, CountsSpansThatTheCollectorRefuses) {
  Logger logger({.level = LogLevel::off});
  Collector collector(1, http::status::service_unavailable);
  SpanExporter exporter({.endpoint = parse_span_endpoint(collector.url(), "endpoint").value(),
                         .model = "m",
                         .service = "quire",
                         .delay = std::chrono::milliseconds(50)},
                        logger);
  exporter.ended(span_of("1"));
  EXPECT_EQ(collector.spans().size(), 1U);
  while (exporter.num_dropped() + exporter.num_sent() == 0) std::this_thread::yield();
  EXPECT_EQ(exporter.num_dropped(), 1U);
}

TEST(SpanExporter, LogsWhenSendingBeginsToFailAndWhenItWorksAgain) {
  Pipe pipe;
  std::string url;
  {
    Logger logger({.level = LogLevel::debug, .format = LogFormat::json, .descriptor = pipe.writer()});
    constexpr http::status kFails = http::status::service_unavailable;
    Collector collector({http::status::ok, kFails, kFails, http::status::accepted, http::status::multiple_choices});
    url = collector.url();
    SpanExporter exporter(
        {.endpoint = parse_span_endpoint(url, "endpoint").value(), .model = "m", .service = "quire", .delay = std::chrono::milliseconds(1)},
        logger);
    for (std::uint64_t i = 1; i <= 5; ++i) {
      exporter.ended(span_of("1"));
      while (exporter.num_dropped() + exporter.num_sent() < i) std::this_thread::yield();
    }
    EXPECT_EQ(exporter.num_sent(), 2U);
    EXPECT_EQ(exporter.num_dropped(), 3U) << "a redirect takes no spans";
    EXPECT_EQ(collector.spans().size(), 5U);
  }
  std::string shown;
  for (const std::string& line : pipe.lines()) {
    const auto fields = boost::json::parse(line);
    EXPECT_EQ("http://" + std::string(fields.at("endpoint").as_string()), url);
    shown += fields.at("level").as_string();
    shown += " " + std::string(fields.at("event").as_string());
    if (const auto* why = fields.as_object().if_contains("why")) shown += " " + std::string(why->as_string());
    shown += "; ";
  }
  EXPECT_EQ(shown, "warning spans_lost status 503; info spans_sent_again; warning spans_lost status 300; ");
}

TEST(SpanExporter, SendsSpansInBatches) {
  Logger logger({.level = LogLevel::off});
  Collector collector(1, http::status::ok);
  SpanExporter exporter({.endpoint = parse_span_endpoint(collector.url(), "endpoint").value(),
                         .model = "m",
                         .service = "quire",
                         .delay = std::chrono::seconds(2)},
                        logger);
  exporter.ended(span_of("\"1\"\n"));
  exporter.ended(span_of("2"));
  const auto spans = collector.spans();
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(attributes_of(spans[0])["gen_ai.request.id"]["stringValue"], "\"1\"\n");
  EXPECT_NE(spans[0].at("spanId"), spans[1].at("spanId"));
  EXPECT_NE(spans[0].at("traceId"), spans[1].at("traceId"));
  while (exporter.num_sent() < 2) std::this_thread::yield();
  EXPECT_EQ(exporter.num_dropped(), 0U);
}

}  // namespace
}  // namespace quire
