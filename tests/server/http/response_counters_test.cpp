// Tests that /metrics counts every response by its status, and clients that leave or stop reading.
#include <chrono>
#include <string>
#include <thread>

#include "server/running_server.h"
#include "support/pipe.h"

namespace quire {
namespace {

class ResponseCounters : public RunningServer {
 protected:
  // Returns the value of a metric of the server, or 0 if it has no line. `label` follows the model's name.
  std::uint64_t value(const std::string& name, const std::string& label = {}) {
    const std::string text = HttpClient(port).get("/metrics").body;
    const std::string line = "\n" + name + "{engine=\"0\",model_name=\"bytes\"" + label + "} ";
    const std::size_t at = text.find(line);
    return at == std::string::npos ? 0 : std::stoull(text.substr(at + line.size()));
  }
  std::uint64_t responses(unsigned status) { return value("quire:http_responses_total", ",status=\"" + std::to_string(status) + '"'); }
  bool becomes(const std::string& name, std::uint64_t expected) {
    for (int i = 0; i < 2000; ++i) {
      if (value(name) == expected) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
};

TEST_F(ResponseCounters, CountWholeAnswersStreamsAndErrors) {
  engine.answer_with("yes");
  start();
  EXPECT_EQ(responses(200), 0U);
  EXPECT_EQ(responses(200), 1U) << "the answer with the metrics counts when it is sent";
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"a"})").status, 200U);
  EXPECT_EQ(responses(200), 3U);
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"a","stream":true})").status, 200U);
  EXPECT_EQ(responses(200), 5U) << "a stream is one response";
  EXPECT_EQ(HttpClient(port).get("/v1/nothing").status, 404U);
  EXPECT_EQ(post("/v1/completions", "{}").status, 400U);
  EXPECT_EQ(HttpClient(port).ask("GARBAGE\r\n").status, 400U);
  EXPECT_EQ(responses(404), 1U);
  EXPECT_EQ(responses(400), 2U);
  EXPECT_EQ(responses(200), 8U);
}

TEST_F(ResponseCounters, CountRefusedStreamsByTheirError) {
  start();
  HttpClient client(port);
  client.send_post("/v1/chat/completions",
                   R"({"messages":[{"role":"user","content":"a"}],"stream":true,"structured_outputs":{"regex":"a"}})");
  ASSERT_TRUE(engine.wait_submitted(1));
  engine.refuse(RequestId{0}, Error{ErrorCode::invalid_argument, "structured_output", "is wrong", "mend it"});
  EXPECT_EQ(client.receive().status, 400U);
  EXPECT_EQ(responses(400), 1U);
  EXPECT_EQ(responses(200), 1U) << "only the answer with the metrics before";
}

TEST_F(ResponseCounters, CountConnections) {
  start();
  const HttpClient idle(port);
  EXPECT_TRUE(becomes("quire:connections", 2)) << "this one and the one that asks";
  const std::uint64_t before = value("quire:connections_total");
  EXPECT_EQ(value("quire:connections_total"), before + 1);
}

TEST_F(ResponseCounters, CountLogLinesThatAreLost) {
  Pipe unread;
  log_options = {.level = LogLevel::info, .descriptor = unread.writer(), .queue_lines = 1};
  start();
  EXPECT_EQ(value("quire:log_lines_dropped_total"), 0U);
  HttpClient client(port);
  // Each error is a line of the log, and a pipe holds 64 KiB.
  for (int i = 0; i < 5000; ++i) EXPECT_EQ(client.get("/v1/nothing").status, 404U);
  EXPECT_GT(value("quire:log_lines_dropped_total"), 0U);
  stop_and_flush();
}

TEST_F(ResponseCounters, CountClientsThatLeaveBeforeTheirAnswer) {
  start();
  {
    HttpClient whole(port), stream(port);
    whole.send_post("/v1/completions", R"({"prompt":"a"})");
    ASSERT_TRUE(engine.wait_submitted(1));
    stream.send_post("/v1/completions", R"({"prompt":"a","stream":true})");
    ASSERT_TRUE(engine.wait_submitted(2));
    EXPECT_EQ(value("quire:clients_disconnected_total"), 0U);
  }
  EXPECT_TRUE(engine.wait_finished(0));
  EXPECT_TRUE(engine.wait_finished(1));
  EXPECT_TRUE(becomes("quire:clients_disconnected_total", 2)) << value("quire:clients_disconnected_total");
  EXPECT_EQ(value("quire:clients_stalled_total"), 0U);
}

TEST_F(ResponseCounters, CountClientsThatLeaveBeforeAPendingReply) {
  start();
  {
    HttpClient client(port);
    client.send_post("/pause", "");
    EXPECT_EQ(engine.take_control().verb, "pause");
    EXPECT_EQ(value("quire:clients_disconnected_total"), 0U);
  }
  EXPECT_TRUE(becomes("quire:clients_disconnected_total", 1));
}

// A prompt that a stream repeats does not count toward the buffer's limit, but the client must read all the same.
TEST_F(ResponseCounters, CountClientsThatDoNotReadTheirStream) {
  engine.set_max_model_len(4096);
  start({.max_stream_buffer_bytes = 1024, .send_buffer_bytes = 4096});
  const std::string much(20'000, 'x');
  std::uint64_t num_stalled = 0;
  for (const std::string& fields : {std::string(R"("prompt":"a")"), R"("echo":true,"prompt":")" + std::string(2000, 'p') + '"'}) {
    const std::size_t index = engine.num_submitted();
    HttpClient client(port, 4096);
    client.send_post("/v1/completions", "{" + fields + R"(,"stream":true})");
    ASSERT_TRUE(engine.wait_submitted(index + 1));
    // Outputs that the server's thread has not taken yet are merged into one step, and only further steps show that the client stalls.
    for (int i = 0; i < 5000 && !engine.at(index).finished; ++i) {
      engine.emit(RequestId{index}, much);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_TRUE(engine.wait_finished(index)) << fields.substr(0, 30);
    EXPECT_EQ(engine.at(index).finished, FinishReason::abort);
    EXPECT_EQ(value("quire:clients_stalled_total"), ++num_stalled);
  }
}

TEST_F(ResponseCounters, OneLateStepDoesNotDisconnectAClient) {
  start({.max_stream_buffer_bytes = 1024, .send_buffer_bytes = 4096});
  HttpClient client(port, 4096);
  client.send_post("/v1/completions", R"({"prompt":"a","stream":true})");
  ASSERT_TRUE(engine.wait_submitted(1));
  // The client reads nothing yet: the first step fills all buffers, and the second one waits.
  for (const std::size_t num_bytes : {std::size_t{8} << 20, std::size_t{20'000}}) {
    engine.emit(RequestId{0}, std::string(num_bytes, 'x'));
    EXPECT_EQ(value("quire:clients_stalled_total"), 0U) << "the server has taken the step";
  }
  ClientResponse response;
  ASSERT_TRUE(client.receive_head(response));
  while (response.body.size() < (std::size_t{8} << 20) + 20'000 && client.receive_chunk(response.body)) {
  }
  EXPECT_GT(response.body.size(), (std::size_t{8} << 20) + 20'000);
  // The client has caught up, so the next step counts like the first one.
  engine.emit(RequestId{0}, std::string(20'000, 'y'));
  response.body.clear();
  ASSERT_TRUE(client.receive_chunk(response.body));
  EXPECT_GT(response.body.size(), 20'000U);
  EXPECT_EQ(value("quire:clients_stalled_total"), 0U);
  EXPECT_EQ(engine.at(0).finished, std::nullopt);
}

// Whole answers have a write timeout, too. The pipelined answers are larger than all buffers.
TEST_F(ResponseCounters, ConnectionOfAClientThatDoesNotReadWholeAnswersEnds) {
  start({.send_buffer_bytes = 4096, .header_timeout_ms = 60'000, .write_timeout_ms = 100});
  std::string many;
  for (int i = 0; i < 40; ++i) many += "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
  HttpClient client(port, 1024);
  client.send(many);
  EXPECT_TRUE(becomes("quire:connections", 1)) << "only the connection that asks is left";
}

}  // namespace
}  // namespace quire
