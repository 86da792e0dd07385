// Which requests are worked on where, with a job pool played by hand.
#include "server/router.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>

#include "server/fake_engine.h"

namespace quire {
namespace {

class RouterTest : public ::testing::Test {
 protected:
  struct Job {
    JobPool::Lane lane;
    JobPool::Function work, done;
    void run() const {
      work();
      done();
    }
  };

  Reply post(const std::string& path, std::string body) {
    HttpRequest request;
    request.id = "id";
    request.method = "POST";
    request.target = path;
    request.body = std::move(body);
    return router_.handle(request, [this] { ++num_wakes_; });
  }
  // Takes and runs what the engine delivered to the server's thread.
  void run_posted() {
    for (; !posted_.empty(); posted_.pop_front()) posted_.front()();
  }
  static std::string chat_of(std::size_t num_bytes) {
    return R"({"messages": [{"role": "user", "content": "a"}], "user": ")" + std::string(num_bytes, 'u') + "\"}";
  }

  FakeEngine engine_;
  std::deque<EngineClient::Task> posted_;
  EngineClient client_{engine_, [this](EngineClient::Task task) { posted_.push_back(std::move(task)); }};
  std::unique_ptr<ServedModel> model_ = ServedModel::create(engine_, {}).value();
  ServerOptions options_{.retry_after_s = 7};
  Logger logger_{{.level = LogLevel::off}};
  bool has_room_ = true;
  std::deque<Job> jobs_;
  Router router_{client_, *model_, options_, logger_, [this](JobPool::Lane lane, JobPool::Function work, JobPool::Function done) {
                   if (has_room_) jobs_.push_back({lane, std::move(work), std::move(done)});
                   return has_room_;
                 }};
  int num_wakes_ = 0;
};

TEST_F(RouterTest, ALargeRequestDelaysNoSmallOne) {
  const Reply large = post("/v1/chat/completions", chat_of(100'000));
  ASSERT_NE(large.pending, nullptr);
  const Reply small = post("/v1/chat/completions", chat_of(100));
  EXPECT_NE(small.completion, nullptr) << "answered while the large one has not been looked at";
  EXPECT_EQ(engine_.num_submitted(), 1U);
  EXPECT_EQ(post("/tokenize", R"({"prompt": "a"})").response.status, 200U);
  ASSERT_EQ(jobs_.size(), 1U);
  EXPECT_FALSE(large.pending->reply.has_value());
  jobs_.front().run();
  ASSERT_TRUE(large.pending->reply.has_value());
  EXPECT_NE(large.pending->reply->completion, nullptr);
  EXPECT_EQ(num_wakes_, 1);
}

TEST_F(RouterTest, TheLaneGoesByTheSize) {
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"}) {
    jobs_.clear();
    post(path, std::string(4096, ' '));
    EXPECT_EQ(jobs_.size(), 0U) << path;
    post(path, std::string(4097, ' '));
    post(path, std::string(65'537, ' '));
    ASSERT_EQ(jobs_.size(), 2U) << path;
    EXPECT_EQ(jobs_[0].lane, JobPool::Lane::small);
    EXPECT_EQ(jobs_[1].lane, JobPool::Lane::large);
  }
}

TEST_F(RouterTest, WithoutRoomAClientIsToldToComeBack) {
  has_room_ = false;
  const Reply refused = post("/tokenize", chat_of(100'000));
  EXPECT_EQ(refused.response.status, 503U);
  EXPECT_NE(refused.response.body.find("overloaded"), std::string::npos);
  EXPECT_EQ(refused.response.headers.front().second, "7");
  EXPECT_NE(post("/v1/chat/completions", chat_of(10)).completion, nullptr);
}

TEST_F(RouterTest, WhatACancelledRequestAskedForIsNotBegun) {
  const Reply gone = post("/v1/chat/completions", chat_of(100'000));
  gone.pending->cancelled = true;
  jobs_.front().run();
  EXPECT_FALSE(gone.pending->reply.has_value());
  EXPECT_EQ(engine_.num_submitted(), 0U);
  EXPECT_EQ(num_wakes_, 0);
}

TEST_F(RouterTest, AClientThatLeavesWhileItsRequestIsReadSubmitsNothing) {
  const Reply gone = post("/v1/chat/completions", chat_of(100'000));
  jobs_.front().work();
  gone.pending->cancelled = true;
  jobs_.front().done();
  EXPECT_EQ(engine_.num_submitted(), 0U);
}

TEST_F(RouterTest, WhatIsWrongWithALargeRequestIsItsAnswer) {
  const Reply wrong = post("/v1/chat/completions", R"({"banana": 1, "user": ")" + std::string(10'000, 'u') + "\"}");
  jobs_.front().run();
  EXPECT_EQ(wrong.pending->reply->response.status, 400U);
}

}  // namespace
}  // namespace quire
