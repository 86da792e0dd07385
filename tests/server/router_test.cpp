// Which requests are worked on where, with a job pool played by hand.
#include <gtest/gtest.h>

#include <string>

#include "server/played_router.h"

namespace quire {
namespace {

using RouterTest = PlayedRouter;

TEST_F(RouterTest, ALargeRequestDelaysNoSmallOne) {
  const Reply large = post("/v1/chat/completions", chat_of(100'000));
  ASSERT_NE(large.pending, nullptr);
  const Reply small = post("/v1/chat/completions", chat_of(100));
  EXPECT_NE(small.answer, nullptr) << "answered while the large one has not been looked at";
  EXPECT_EQ(engine_.num_submitted(), 1U);
  EXPECT_EQ(post("/tokenize", R"({"prompt": "a"})").response.status, 200U);
  ASSERT_EQ(jobs_.size(), 1U);
  EXPECT_FALSE(large.pending->reply.has_value());
  jobs_.front().run();
  ASSERT_TRUE(large.pending->reply.has_value());
  EXPECT_NE(large.pending->reply->answer, nullptr);
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
  EXPECT_NE(post("/v1/chat/completions", chat_of(10)).answer, nullptr);
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
