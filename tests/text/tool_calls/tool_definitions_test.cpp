#include "text/tool_calls/tool_definitions.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <string>

namespace quire {
namespace {

namespace json = boost::json;

json::value dropped(std::string_view tools) {
  json::value value = json::parse(tools);
  drop_nulls_of_tools(value);
  return value;
}

json::value filled(std::string_view tools, ToolFields fields) {
  json::value value = json::parse(tools);
  fill_in(value, fields);
  return value;
}

TEST(ToolDefinitions, DropNullsThatAreNotValues) {
  EXPECT_EQ(dropped(R"([{"type": "function", "strict": null, "function": {"name": "f", "description": null, "parameters":
                {"type": "object", "required": null, "properties": {"default": {"enum": [null, 1], "default": null, "title": null},
                                                                  "const": null, "a": {"anyOf": [{"const": null, "items": null}]}}}}}])"),
            json::parse(R"([{"type": "function", "function": {"name": "f", "parameters":
                {"type": "object", "properties": {"default": {"enum": [null, 1], "default": null}, "const": {}, "a": {"anyOf": [{"const": null}]}}}}}])"));
}

TEST(ToolDefinitions, FillInTheRequestedFields) {
  constexpr std::string_view kBare = R"([{"function": {"name": "f"}}])";
  EXPECT_EQ(filled(kBare, ToolFields::as_sent), json::parse(kBare));
  EXPECT_EQ(
      filled(kBare, ToolFields::functions),
      json::parse(
          R"([{"type": "function", "function": {"name": "f", "description": "", "parameters": {"type": "object", "properties": {}}}}])"));
  const json::value all =
      filled(R"([{"name": "f", "parameters": {"properties": {"a": {"type": ["null", "array"]}, "b": true, "c": {"enum": [2], "default": 2},
                                       "d": {"properties": {}}, "e": {"anyOf": [{"type": "null"}, {"type": "boolean"}]}}}}])",
             ToolFields::schemas);
  const json::value& properties = all.at(0).at("parameters").at("properties");
  EXPECT_EQ(properties.at("a").at("type"), "array");
  EXPECT_EQ(properties.at("a").at("items").at("type"), "string");
  EXPECT_EQ(properties.at("c").at("default"), "2");
  for (const auto& [name, type] : {std::pair("b", "string"), {"c", "integer"}, {"d", "object"}, {"e", "boolean"}}) {
    EXPECT_EQ(properties.at(name).at("type"), type) << name;
    EXPECT_EQ(properties.at(name).at("description"), "") << name;
  }
}

TEST(ToolDefinitions, FillInFieldsOnlyWhenTheTemplateFails) {
  const auto rendered = [](const char* source, std::string_view tools) {
    json::object context{{"messages", json::array()}, {"tools", json::parse(tools)}};
    const auto text = render_with_tools(ChatTemplate::parse(source).value(), context, {});
    return text ? *text : "error " + text.error().to_string();
  };
  EXPECT_EQ(rendered("{{ tools | tojson }}", R"([{"function": {"name": "f", "description": null}}])"), R"([{"function": {"name": "f"}}])");
  EXPECT_EQ(rendered("{{ tools[0].function.name + tools[0].function.description }}", R"([{"function": {"name": "f"}}])"), "f");
  EXPECT_EQ(rendered("{{ 'a' + tools[0].function.parameters.properties.x.type }}",
                     R"([{"function": {"name": "f", "parameters": {"properties": {"x": {}}}}}])"),
            "astring");
  EXPECT_EQ(rendered("{{ raise_exception('no tools') }}", R"([{"function": {"name": "f"}}])"),
            "error messages: no tools; change the messages, or use another template");
}

}  // namespace
}  // namespace quire
