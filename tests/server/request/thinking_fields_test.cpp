// Tests the fields that turn reasoning on or off.
#include <gtest/gtest.h>

#include <boost/json/serialize.hpp>
#include <string>
#include <vector>

#include "server/request/request_bodies.h"

namespace quire {
namespace {

TEST(ThinkingFields, TurnReasoningOnOffOrLeaveItToTheModel) {
  const auto shown = [](const std::string& fields) {
    const auto request = chat_request(kHiMessage + ", " + fields);
    EXPECT_TRUE(request) << request.error().to_string();
    const boost::json::value* is_on = request->chat.template_kwargs.if_contains("enable_thinking");
    return is_on == nullptr ? std::string("default") : boost::json::serialize(*is_on);
  };
  EXPECT_EQ(shown(R"("thinking": true)"), "true");
  EXPECT_EQ(shown(R"("thinking": {"type": "enabled", "budget_tokens": 5})"), "true");
  EXPECT_EQ(shown(R"("thinking": {"type": "disabled"})"), "false");
  EXPECT_EQ(shown(R"("thinking": {"type": "adaptive"})"), "default");
  EXPECT_EQ(shown(R"("thinking": {"type": "auto"})"), "default");
  EXPECT_EQ(shown(R"("thinking": {})"), "default");
  EXPECT_EQ(shown(R"("reasoning": {"enabled": true})"), "true");
  EXPECT_EQ(shown(R"("reasoning": {"exclude": false})"), "default");
  EXPECT_EQ(shown(R"("think": true)"), "true");
  EXPECT_EQ(shown(R"("enable_thinking": true, "think": false)"), "true") << "the first of the names counts";
  EXPECT_EQ(chat_request(kHiMessage + R"(, "reasoning": {"effort": "low"}, "reasoning_effort": "high")")
                ->chat.template_kwargs.at("reasoning_effort"),
            "high");
  EXPECT_TRUE(chat_request(kHiMessage + R"(, "reasoning": {"exclude": false})")->includes_reasoning);
  EXPECT_EQ(chat_request(kHiMessage + R"(, "reasoning": {"summary": "auto", "generate_summary": "x"})")->ignored,
            (std::vector<std::string>{"reasoning.summary", "reasoning.generate_summary"}));
  EXPECT_TRUE(chat_request(kHiMessage + R"(, "reasoning": {"effort": "low", "enabled": true, "max_tokens": null})")->ignored.empty())
      << "these fields are read";
}

}  // namespace
}  // namespace quire
