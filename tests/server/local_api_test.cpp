// Tests the server's API within the process (quire/local_api.h) with an engine that the test drives.
#include "quire/local_api.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "server/fake_engine.h"

namespace quire {
namespace {

class LocalApiTest : public testing::Test {
 protected:
  std::unique_ptr<LocalCall> post(const std::string& target, std::string body) {
    return api_->call({.target = target, .body = std::move(body)}).value();
  }
  // Returns the rest of the reply. Waits for its end.
  static LocalReplyPart rest(LocalCall& call) {
    LocalReplyPart all;
    while (all.end == LocalCallEnd::none) {
      LocalReplyPart part = call.take(std::chrono::seconds(20));
      part.bytes.insert(0, all.bytes);
      all = std::move(part);
    }
    return all;
  }

  FakeEngine engine_;
  Logger logger_{{.level = LogLevel::off}};
  std::unique_ptr<LocalApi> api_ = LocalApi::create(engine_, {}, logger_).value();
};

constexpr const char* kStream = R"({"prompt": "a", "max_tokens": 9, "stream": true})";

TEST_F(LocalApiTest, StreamsAnAnswerAsItIsGenerated) {
  const auto call = post("/v1/completions", kStream);
  ASSERT_TRUE(engine_.wait_submitted(1));
  ASSERT_TRUE(call->wait_started());
  EXPECT_EQ(call->take(std::chrono::milliseconds(0)).bytes, "") << "the engine has generated nothing yet";
  engine_.emit(RequestId{0}, "ri");
  const LocalReplyPart first = call->take();
  EXPECT_EQ(first.status, 200U);
  EXPECT_EQ(first.end, LocalCallEnd::none);
  EXPECT_NE(first.bytes.find(R"("text":"ri")"), std::string::npos) << first.bytes;
  EXPECT_NE(first.bytes.find("\"cmpl-" + call->id() + "\""), std::string::npos) << first.bytes;
  engine_.end(RequestId{0}, FinishReason::stop);
  const LocalReplyPart last = rest(*call);
  EXPECT_TRUE(last.bytes.ends_with("data: [DONE]\n\n")) << last.bytes;
  EXPECT_EQ(last.end, LocalCallEnd::complete);
}

TEST_F(LocalApiTest, ReturnsAWholeAnswer) {
  engine_.answer_with("river");
  const auto call = post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}]})");
  EXPECT_TRUE(call->wait_ended(std::chrono::seconds(20)));
  const LocalReplyPart reply = rest(*call);
  EXPECT_EQ(reply.status, 200U);
  EXPECT_EQ(reply.content_type, "application/json");
  EXPECT_NE(reply.bytes.find(R"("content":"river")"), std::string::npos) << reply.bytes;
}

TEST_F(LocalApiTest, ReportsAnErrorOfTheRequestAsItsReply) {
  const auto call = post("/v1/completions", R"({"prompt": "a", "max_tokens": -1})");
  ASSERT_TRUE(call->wait_started());
  const LocalReplyPart reply = rest(*call);
  EXPECT_EQ(reply.status, 400U);
  EXPECT_NE(reply.bytes.find(R"("param":"max_tokens")"), std::string::npos) << reply.bytes;
  EXPECT_EQ(rest(*post("/v1/nothing", "{}")).status, 404U);
}

// Bodies over 4 KiB are read by the job pool.
TEST_F(LocalApiTest, AnswersALargeBody) {
  const LocalReplyPart reply = rest(*post("/tokenize", R"({"prompt": "a")" + std::string(100'000, ' ') + "}"));
  EXPECT_EQ(reply.status, 200U) << reply.bytes;
}

TEST_F(LocalApiTest, AllowsTheRoutesOfOperators) {
  const auto call = post("/resume", "");
  engine_.take_control().answer(true);
  EXPECT_EQ(rest(*call).status, 200U);
  const auto health = api_->call({.method = "GET", .target = "/health"}).value();
  EXPECT_EQ(rest(*health).bytes, R"({"status":"ok"})");
}

TEST_F(LocalApiTest, NeedsNoKeyFromItsCallers) {
  FakeEngine engine;
  const auto api = LocalApi::create(engine, {.api_key = "secret"}, logger_).value();
  const auto call = api->call({.method = "GET", .target = "/v1/models"}).value();
  EXPECT_EQ(rest(*call).status, 200U);
}

TEST_F(LocalApiTest, AbortsTheRequestsOfACancelledCall) {
  const auto call = post("/v1/completions", kStream);
  ASSERT_TRUE(engine_.wait_submitted(1));
  std::thread canceller([&] { call->cancel(); });
  const LocalReplyPart last = rest(*call);
  canceller.join();
  EXPECT_EQ(last.end, LocalCallEnd::cancelled);
  EXPECT_TRUE(engine_.wait_finished(0));
  EXPECT_EQ(engine_.at(0).finished, FinishReason::abort);
  call->cancel();
}

TEST_F(LocalApiTest, AbortsTheRequestsOfADestroyedCall) {
  auto call = post("/v1/completions", kStream);
  ASSERT_TRUE(engine_.wait_submitted(1));
  call.reset();
  EXPECT_TRUE(engine_.wait_finished(0));
}

TEST_F(LocalApiTest, EndsAllCallsWhenItStops) {
  const auto stream = post("/v1/completions", kStream);
  const auto control = post("/resume", "");
  ASSERT_TRUE(engine_.wait_submitted(1));
  std::thread stopper([&] { api_->stop(); });
  EXPECT_EQ(rest(*stream).end, LocalCallEnd::stopped);
  EXPECT_EQ(rest(*control).end, LocalCallEnd::stopped);
  stopper.join();
  EXPECT_EQ(api_->call({.target = "/v1/completions"}).error().code, ErrorCode::shutting_down);
  api_->stop();
  api_.reset();
  stream->cancel();
}

TEST_F(LocalApiTest, KeepsOutputThatIsReadLater) {
  engine_.answer_with("river");
  const auto call = post("/v1/completions", kStream);
  ASSERT_TRUE(call->wait_ended(std::chrono::seconds(20)));
  EXPECT_NE(rest(*call).bytes.find("[DONE]"), std::string::npos);
  EXPECT_FALSE(post("/resume", "")->wait_ended(std::chrono::milliseconds(0)));
}

}  // namespace
}  // namespace quire
