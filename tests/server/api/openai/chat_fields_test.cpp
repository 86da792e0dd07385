// Tests the fields of messages and deltas of a chat.
#include "server/api/openai/chat_fields.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <string>
#include <vector>

namespace quire {
namespace {

namespace json = boost::json;
using PartKind = AnswerPart::Kind;

TEST(ChatFields, HaveContentReasoningAndCalls) {
  const std::vector<AnswerPart> call = {
      {PartKind::call, 0, "f"}, {PartKind::arguments, 0, "{"}, {PartKind::arguments, 0, "}"}, {PartKind::call_end, 0, ""}};
  const auto fields = [](const std::vector<AnswerPart>& parts) { return json::parse("{" + message_fields(parts, "call_") + "}"); };
  const std::string calls = R"("tool_calls":[{"id":"call_0","type":"function","function":{"name":"f","arguments":"{}"}}])";
  EXPECT_EQ(fields({}), json::parse(R"({"content":""})"));
  EXPECT_EQ(fields({{PartKind::content, 0, "a"}, {PartKind::content, 0, "b"}}), json::parse(R"({"content":"ab"})"));
  EXPECT_EQ(fields({{PartKind::reasoning, 0, "a"}}), json::parse(R"({"content":null,"reasoning_content":"a"})"));
  EXPECT_EQ(fields({{PartKind::reasoning, 0, "a"}, {PartKind::content, 0, "b"}}),
            json::parse(R"({"content":"b","reasoning_content":"a"})"));
  EXPECT_EQ(fields(call), json::parse(R"({"content":null,)" + calls + "}"));
  std::vector<AnswerPart> both = call;
  both.push_back({PartKind::content, 0, "b"});
  EXPECT_EQ(fields(both), json::parse(R"({"content":"b",)" + calls + "}"));
  EXPECT_EQ(delta_fields({PartKind::call, 2, "f"}, "call_"),
            R"("tool_calls":[{"index":2,"id":"call_2","type":"function","function":{"name":"f","arguments":""}}])");
  EXPECT_EQ(delta_fields({PartKind::arguments, 2, "{"}, "call_"), R"("tool_calls":[{"index":2,"function":{"arguments":"{"}}])");
  EXPECT_EQ(delta_fields({PartKind::reasoning, 0, "r"}, "call_"), R"("reasoning_content":"r")");
  EXPECT_EQ(delta_fields({PartKind::content, 0, "c"}, "call_"), R"("content":"c")");
  for (const PartKind end : {PartKind::call_end, PartKind::call_broken, PartKind::call_truncated})
    EXPECT_EQ(delta_fields({end, 0, "x"}, "call_"), "");
  EXPECT_EQ(call_ids({Api::chat, "chatcmpl-mine-00ff", "m", 5}, 3), "call_00ff_3_");
}

}  // namespace
}  // namespace quire
