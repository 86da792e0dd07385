// Tests the load run against prepared servers: the order of requests, connections, and each kind of failure.
#include "traffic/traffic_run.h"

#include <gtest/gtest.h>

#include <set>

#include "traffic/prepared_server.h"

namespace quire {
namespace {

using test::PreparedServer;
using End = RequestRecord::End;

struct LoadRun {
  TrafficOptions options{.max_concurrency = 4, .timeout_s = 20.0};
  std::vector<WorkloadRequest> requests{};
  TrafficHooks hooks{.body = [](std::uint32_t i) { return fmt::format(R"({{"request": {}}})", i); }};

  [[nodiscard]] TrafficResult against(const std::string& url) const {
    return run_traffic(Target::create(url, "secret").value(), requests, options, hooks);
  }
};

PreparedServer::Answer always(std::string answer) {
  return [answer = std::move(answer)](const std::string& /*request*/, std::size_t /*number*/) { return std::vector{answer}; };
}

TEST(TrafficRun, SendsEachRequestOnceAndReusesConnections) {
  PreparedServer server(always(test::two_token_stream()));
  const LoadRun run{.requests = std::vector<WorkloadRequest>(30)};
  const TrafficResult result = run.against(server.url() + "/v1/");
  ASSERT_EQ(result.records.size(), 30U);
  for (const RequestRecord& record : result.records) {
    ASSERT_EQ(record.end, End::completed) << record.failure;
    EXPECT_EQ(record.prompt_tokens, 7U);
    EXPECT_EQ(record.output_tokens, 2U);
    EXPECT_GT(record.ttft_s, 0.0);
    EXPECT_GE(record.latency_s, record.ttft_s);
  }
  EXPECT_EQ(result.peak_concurrency, 4U);
  EXPECT_EQ(server.num_connections(), 4U);
  std::set<std::string> bodies;
  for (const std::string& request : server.requests()) {
    EXPECT_TRUE(request.starts_with("POST /v1/completions HTTP/1.1\r\n")) << request;
    EXPECT_NE(request.find("\r\nAuthorization: Bearer secret\r\n"), std::string::npos);
    bodies.insert(request.substr(request.find("\r\n\r\n")));
  }
  EXPECT_EQ(bodies.size(), 30U);
}

TEST(TrafficRun, ReadsAnAnswerThatArrivesByteByByte) {
  PreparedServer server([](const std::string& /*request*/, std::size_t /*number*/) {
    std::vector<std::string> bytes;
    for (const char c : test::two_token_stream()) bytes.emplace_back(1, c);
    return bytes;
  });
  const TrafficResult result = LoadRun{.requests = std::vector<WorkloadRequest>(2)}.against(server.url());
  for (const RequestRecord& record : result.records) {
    EXPECT_EQ(record.end, End::completed) << record.failure;
    ASSERT_EQ(record.gaps_s.size(), 1U);
    EXPECT_GT(record.gaps_s[0], 0.0F);
  }
}

// The server closes each connection, either with a header, by the end of the body, or silently while the connection is idle.
TEST(TrafficRun, OpensAnotherConnectionIfTheServerClosesOne) {
  const std::string to_the_end = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\ndata: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: [DONE]\n\n";
  PreparedServer server([&](const std::string& /*request*/, std::size_t number) -> std::vector<std::string> {
    if (number % 3 == 0) return {to_the_end};
    return number % 3 == 1 ? std::vector{test::two_token_stream()} : std::vector<std::string>{};  // no answer on a used connection
  });
  LoadRun run{.requests = std::vector<WorkloadRequest>(5)};
  run.options.max_concurrency = 1;
  for (const RequestRecord& record : run.against(server.url()).records) EXPECT_EQ(record.end, End::completed) << record.failure;
}

TEST(TrafficRun, CountsFailuresWithTheirReasons) {
  PreparedServer server([](const std::string& /*request*/, std::size_t number) -> std::vector<std::string> {
    switch (number) {
      case 0:
        return {test::plain_answer("429 Too Many Requests", R"({"error": {"message": "the queue is full"}})")};
      case 1:
        return {"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" +
                test::chunk("data: {\"choices\":[{\"text\":\"a\"}]}\n\n")};
      case 2:
        return {"SSH-2.0-OpenSSH_9.2\r\nConnection: close\r\n"};
      case 3:
        return {test::plain_answer("200 OK", R"({"choices": [{"text": "not streamed"}]})")};
      case 4:
        return {};
      default:
        return {test::two_token_stream()};
    }
  });
  LoadRun run{.requests = std::vector<WorkloadRequest>(6)};
  run.options.max_concurrency = 1;
  const TrafficResult result = run.against(server.url());
  ASSERT_EQ(result.records.size(), 6U);
  EXPECT_EQ(result.records[0].failure, "429: the queue is full");
  EXPECT_EQ(result.records[1].failure, "the connection was closed before the end of the answer");
  EXPECT_TRUE(result.records[2].failure.starts_with("the answer is not HTTP: ")) << result.records[2].failure;
  EXPECT_TRUE(result.records[3].failure.starts_with("200: the answer is not a stream of events: ")) << result.records[3].failure;
  EXPECT_EQ(result.records[4].end, End::completed)
      << "a used connection that is closed without an answer is replaced: " << result.records[4].failure;
  EXPECT_EQ(result.records[5].end, End::completed);
}

TEST(TrafficRun, FailsRequestsAfterTheTimeout) {
  PreparedServer server([](const std::string& request, std::size_t /*number*/) -> std::vector<std::string> {
    if (request.find(R"("request": 1)") == std::string::npos) return {test::two_token_stream()};
    return {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"};
  });
  LoadRun run{.requests = std::vector<WorkloadRequest>(2)};
  run.options.timeout_s = 0.3;
  const TrafficResult result = run.against(server.url());
  EXPECT_EQ(result.records[0].end, End::completed) << result.records[0].failure;
  EXPECT_EQ(result.records[1].failure, "no complete answer within 0.3 s (--timeout)");
}

TEST(TrafficRun, FailsEachRequestWithoutAServer) {
  std::string url;
  {
    PreparedServer gone(always(""));
    url = gone.url();
  }
  const TrafficResult result = LoadRun{.requests = std::vector<WorkloadRequest>(3)}.against(url);
  for (const RequestRecord& record : result.records) EXPECT_EQ(record.failure, "Connection refused");
}

TEST(TrafficRun, SendsARequestAfterTheEndOfAnother) {
  PreparedServer server(always(test::two_token_stream()));
  LoadRun run{.requests = std::vector<WorkloadRequest>(4)};
  run.requests[1] = {.start_s = 0.05, .after = 0};
  run.requests[2] = {.start_s = 0.0, .after = 1};
  run.requests[3] = {.start_s = 0.02};
  const TrafficResult result = run.against(server.url());
  const auto end_s = [&](std::size_t i) { return result.records[i].sent_s + result.records[i].latency_s; };
  EXPECT_GE(result.records[1].sent_s, end_s(0) + 0.05);
  EXPECT_GE(result.records[2].sent_s, end_s(1));
  EXPECT_GE(result.records[3].sent_s, 0.02);
  EXPECT_LT(result.records[3].sent_s, result.records[2].sent_s);
}

TEST(TrafficRun, StopsWithTheResultsSoFar) {
  PreparedServer server(always(test::two_token_stream()));
  LoadRun run{.requests = std::vector<WorkloadRequest>(3)};
  run.requests[2].start_s = 1e6;
  std::size_t num_ended = 0;
  run.hooks.progress = [&](std::size_t ended) { num_ended = ended; };
  run.hooks.is_stopped = [&] { return num_ended == 2; };
  const TrafficResult result = run.against(server.url());
  EXPECT_EQ(result.records[0].end, End::completed);
  EXPECT_EQ(result.records[1].end, End::completed);
  EXPECT_EQ(result.records[2].end, End::none);
  EXPECT_EQ(result.records[2].sent_s, -1.0);
}

}  // namespace
}  // namespace quire
