// Tests the grammars that answers must follow.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "quire/base/structured_output.h"
#include "server/request/object_reader.h"
#include "server/running_server.h"

namespace quire {
namespace {

class FormsOfAnswers : public RunningServer {
 protected:
  ClientResponse ask(const std::string& fields) {
    return post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"a"}],"max_tokens":3,)" + fields + "}");
  }
  ClientResponse ask_schema(const std::string& schema, const std::string& more = "") {
    return ask(R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":)" + schema + "}}" + more);
  }
  std::string wanted(std::size_t index) { return engine.at(index).request.structured_output.value().text; }
};

TEST_F(FormsOfAnswers, AreHeldToTheEnforceablePartOfASchema) {
  if (!has_structured_output()) GTEST_SKIP() << "built without llguidance";
  engine.answer_with("{}");
  start();
  const auto plain = ask_schema(R"({"type":"object"})");
  EXPECT_EQ(plain.status, 200U) << plain.body;
  EXPECT_FALSE(plain.json().as_object().contains("warnings"));
  EXPECT_EQ(wanted(0), R"({"type":"object"})");
  const auto part = ask_schema(R"({"type":"object","not":{"type":"null"}})");
  ASSERT_EQ(part.status, 200U) << part.body;
  const std::string warning(part.json().at("warnings").as_array().at(0).as_string());
  EXPECT_TRUE(warning.starts_with("response_format.json_schema.schema: ")) << warning;
  EXPECT_TRUE(warning.ends_with("; the rest of the schema is enforced")) << warning;
  EXPECT_EQ(part.header("X-Quire-Ignored-Fields"), "response_format.json_schema.schema");
  EXPECT_EQ(engine.at(1).request.structured_output->kind, StructuredOutput::Kind::lark);
  EXPECT_EQ(wanted(1), R"(start: %json {"type":"object","not":{"type":"null"},"x-guidance":{"lenient":true}})");
  const auto none = ask_schema(R"({"$ref":"#/$defs/missing"})");
  ASSERT_EQ(none.status, 200U) << none.body;
  const std::string any(none.json().at("warnings").as_array().at(0).as_string());
  EXPECT_TRUE(any.ends_with("; the answer may be any JSON")) << any;
  EXPECT_EQ(wanted(2), "{}");
  const auto strict = ask(R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"not":{}}}})");
  EXPECT_EQ(strict.status, 200U) << "the engine decides";
  EXPECT_EQ(wanted(3), R"({"not":{}})");
}

TEST_F(FormsOfAnswers, LoseOnlyTheKeywordsThatCannotBeEnforced) {
  if (!has_structured_output()) GTEST_SKIP() << "built without llguidance";
  engine.answer_with("{}");
  start();
  const auto part = ask_schema(R"({"type":"object","properties":{"a":{"type":"strin"},"b":{"type":"string"}}})");
  ASSERT_EQ(part.status, 200U) << part.body;
  const std::string warning(part.json().at("warnings").as_array().at(0).as_string());
  EXPECT_TRUE(warning.ends_with("; the rest of the schema is enforced")) << warning;
  EXPECT_EQ(wanted(0), R"(start: %json {"type":"object","properties":{"a":{},"b":{"type":"string"}},"x-guidance":{"lenient":true}})");
}

TEST_F(FormsOfAnswers, WarnOfToolsWhoseArgumentsAreNoObject) {
  if (!has_structured_output()) GTEST_SKIP() << "built without llguidance";
  engine.answer_with("x");
  engine.set_chat_template("{{ tools }}<tool_call>\n{\"name\": <name>, \"arguments\": <object>}\n</tool_call>");
  engine.set_max_model_len(100'000);
  start();
  const auto warnings = [&](const std::string& type, std::size_t num_tools = 1) {
    std::string tools;
    for (std::size_t i = 0; i < num_tools; ++i)
      tools += std::string(i == 0 ? "" : ",") + R"({"function":{"name":"f)" + std::to_string(i) + R"(","parameters":{)" + type + "}}}";
    const ClientResponse response = ask(R"("tool_choice":"required","tools":[)" + tools + "]");
    EXPECT_EQ(response.status, 200U) << response.body;
    const auto answer = response.json();
    return answer.as_object().contains("warnings") ? answer.at("warnings").as_array() : boost::json::array();
  };
  for (const char* type : {R"("type":"object")", R"("type":["null","object"])", R"("properties":{})"})
    EXPECT_TRUE(warnings(type).empty()) << type;
  for (const char* type : {R"("type":"array")", R"("type":["string","null"])", R"("type":3)"}) {
    ASSERT_EQ(warnings(type).size(), 1U) << type;
    const std::string warning(warnings(type).at(0).as_string());
    EXPECT_TRUE(warning.starts_with("tools[0].function.parameters: the schema of 'f0' cannot be enforced: #: 'type' is ")) << warning;
    EXPECT_TRUE(warning.ends_with(", but arguments must be an object; its arguments may be any object")) << warning;
  }
  EXPECT_EQ(warnings(R"("type":"array")", kMaxIgnored).size(), kMaxIgnored);
  EXPECT_EQ(warnings(R"("type":"array")", kMaxIgnored + 1).size(), kMaxIgnored) << "an answer has at most as many warnings";
}

TEST_F(FormsOfAnswers, NameAtMostAsManyIgnoredFieldsAsMayBe) {
  if (!has_structured_output()) GTEST_SKIP() << "built without llguidance";
  engine.answer_with("{}");
  start();
  const auto ignored = [&](std::size_t num_unknown) {
    std::string unknown;
    for (std::size_t i = 0; i < num_unknown; ++i) unknown += R"(,"unknown_)" + std::to_string(i) + R"(":1)";
    const ClientResponse response = ask_schema(R"({"type":"object","not":{"type":"null"}})", unknown);
    EXPECT_EQ(response.json().at("warnings").as_array().size(), 1U) << response.body;
    const std::string names = response.header("X-Quire-Ignored-Fields");
    return static_cast<std::size_t>(std::ranges::count(names, ',')) + 1;
  };
  EXPECT_EQ(ignored(kMaxIgnored - 2), kMaxIgnored - 1) << "the schema is named last";
  EXPECT_EQ(ignored(kMaxIgnored - 1), kMaxIgnored);
  EXPECT_EQ(ignored(kMaxIgnored), kMaxIgnored);
}

TEST_F(FormsOfAnswers, ChangeOnlyWhereTheyMust) {
  if (!has_structured_output()) GTEST_SKIP() << "built without llguidance";
  engine.answer_with("{}");
  start();
  EXPECT_EQ(ask(R"("structured_outputs":{"json":{"type":"object"},"whitespace_pattern":"[ ]?"})").status, 200U);
  EXPECT_EQ(wanted(0), R"(start: %json {"type":"object","x-guidance":{"whitespace_pattern":"[ ]?"}})");
  EXPECT_EQ(ask(R"("structured_outputs":{"json":true,"whitespace_pattern":"x"})").status, 200U);
  EXPECT_EQ(wanted(1), R"(start: %json {"x-guidance":{"whitespace_pattern":"x"}})");
  EXPECT_EQ(ask(R"("guided_regex":"a")").status, 200U);
  EXPECT_EQ(wanted(2), "a");
  EXPECT_EQ(engine.at(2).request.structured_output->kind, StructuredOutput::Kind::regex);
  const std::string tool = R"("tools":[{"function":{"name":"f"}}],)";
  const auto both = ask(tool + R"("guided_regex":"a")");
  EXPECT_EQ(both.status, 400U);
  EXPECT_EQ(both.error_message(), "guided_regex: cannot be combined with tools that the model may call; send only one of them");
  EXPECT_EQ(ask(tool + R"("guided_regex":"a","tool_choice":"none")").status, 200U);
  const auto bad =
      R"("tools":[{"function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"strin"}}},"strict":true}}])";
  const auto refused = ask(bad);
  EXPECT_EQ(refused.status, 400U);
  EXPECT_TRUE(refused.error_message().starts_with("tools[0].function.parameters: the schema of 'f' cannot be enforced: "))
      << refused.error_message();
  EXPECT_TRUE(refused.error_message().ends_with("; fix the schema, or leave out 'strict'")) << refused.error_message();
}

}  // namespace
}  // namespace quire
