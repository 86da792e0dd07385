// Tests that another API needs only a folder and a line in the router's list. The example is an API of a third vendor.
#include "server/echo_chat/echo_chat.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <string>

#include "server/played_router.h"

namespace quire {
namespace {

namespace json = boost::json;

class EchoChat : public PlayedRouter {
 protected:
  EchoChat() : PlayedRouter(echo_chat_routes) {}
};

TEST_F(EchoChat, WritesAWholeAnswerInItsFormat) {
  engine_.answer_with("hi there");
  const Reply reply = post("/v1/echo-chat", R"({"say": "yo"})");
  ASSERT_NE(reply.answer, nullptr) << reply.response.body;
  run_posted();
  ASSERT_TRUE(reply.answer->finished());
  EXPECT_EQ(tokens_to_bytes(engine_.at(0).request.prompt), "<user>yo<assistant>");
  const HttpResponse response = reply.answer->take_response();
  EXPECT_EQ(response.status, 200U);
  EXPECT_EQ(json::parse(response.body), json::parse(R"({"id": "echo_id", "said": "hi there", "why": "done"})"));
}

TEST_F(EchoChat, WritesAStreamInItsFormat) {
  const Reply reply = post("/v1/echo-chat", R"({"say": "yo", "live": true, "most": 5})");
  ASSERT_NE(reply.answer, nullptr) << reply.response.body;
  ASSERT_TRUE(reply.answer->is_stream());
  engine_.emit(RequestId{0}, "a");
  run_posted();
  EXPECT_EQ(reply.answer->take_events(), "hello echo_id 19\nword \"a\"\n");
  engine_.emit(RequestId{0}, "b");
  engine_.end(RequestId{0}, FinishReason::length);
  run_posted();
  EXPECT_EQ(reply.answer->take_events(), "word \"b\"\nbye enough 2\n");
  EXPECT_TRUE(reply.answer->finished());
}

TEST_F(EchoChat, ReportsAFailedStream) {
  const Reply reply = post("/v1/echo-chat", R"({"say": "yo", "live": true})");
  ASSERT_NE(reply.answer, nullptr) << reply.response.body;
  engine_.end(RequestId{0}, FinishReason::error, "broke");
  run_posted();
  EXPECT_EQ(reply.answer->take_events(), "hello echo_id 19\noops \"broke\"\n");
}

TEST_F(EchoChat, WritesErrorsWithItsFieldNames) {
  const Reply reply = post("/v1/echo-chat", R"({"say": "yo", "most": 100000})");
  EXPECT_EQ(reply.response.status, 400U);
  EXPECT_EQ(json::parse(reply.response.body).at("error").at("param"), "most");
  const HttpResponse formatted = router_.format_for_path("/v1/echo-chat", reply.response);
  EXPECT_TRUE(json::parse(formatted.body).as_object().contains("oops"));
  EXPECT_EQ(router_.format_for_path("/v1/completions", reply.response).body, reply.response.body) << "other APIs keep their format";
}

TEST_F(EchoChat, LeavesOtherApisUnchanged) {
  EXPECT_NE(post("/v1/chat/completions", chat_of(10)).answer, nullptr);
  EXPECT_EQ(post("/v1/echo-chat", R"({"say": "yo", "banana": 1})").response.status, 400U);
  HttpRequest unknown;
  unknown.method = "GET";
  unknown.target = "/v1/echo-chat";
  const auto refused = router_.answer_early(unknown);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->status, 405U);
}

}  // namespace
}  // namespace quire
