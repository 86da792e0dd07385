#include "text/tool_calls/tagged_value.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <string>
#include <string_view>

namespace quire {
namespace {

struct Tagged {
  std::string_view schema, text, json;
};

TEST(TaggedValue, HasTheTypeThatItsSchemaAllows) {
  for (const Tagged& one : {Tagged{R"({"type": "string"})", "12", R"("12")"},
                            {R"({"type": "string"})", "None", R"("None")"},
                            {R"({"type": "string"})", "a\n\"b\"", R"("a\n\"b\"")"},
                            {R"({"type": ["string", "null"]})", "None", "null"},
                            {R"({"type": ["null", "string"]})", "null", "null"},
                            {R"({"type": ["string", "null"]})", "12", R"("12")"},
                            {R"({"type": ["string", "null"]})", "none", R"("none")"},
                            {R"({"type": ["string", "integer"]})", "12", R"("12")"},
                            {R"({"type": ["integer", "null"]})", "12", "12"},
                            {R"({"type": "integer"})", " 12\n", "12"},
                            {R"({"type": "integer"})", "None", "null"},
                            {R"({"type": "integer"})", "twelve", R"("twelve")"},
                            {R"({"type": "integer"})", "1,", R"("1,")"},
                            {R"({"type": "integer"})", "1, 2", R"("1, 2")"},
                            {R"({"type": "boolean"})", "True", "true"},
                            {R"({"type": "array"})", "[1, 'a']", R"([1, "a"])"},
                            {R"({"type": "array"})", "[1", R"("[1")"},
                            {R"({"type": "object"})", "{'a': None}", R"({"a": null})"},
                            {R"({"type": "object"})", "", R"("")"},
                            {"{}", "12", "12"},
                            {"{}", "'a'", R"("a")"},
                            {"{}", "a", R"("a")"},
                            {"true", "12", "12"},
                            {R"({"const": "12"})", "12", R"("12")"},
                            {R"({"const": 12})", "12", "12"},
                            {R"({"const": null})", "None", "null"},
                            {R"({"enum": ["1", 2]})", "2", R"("2")"},
                            {R"({"enum": [1, 2]})", "2", "2"},
                            {R"({"enum": [null, "a"]})", "null", "null"},
                            {R"({"enum": [null, "a"]})", "a", R"("a")"},
                            {R"({"enum": 3})", "3", "3"},
                            {R"({"anyOf": [{"type": "string"}, {"type": "null"}]})", "null", "null"},
                            {R"({"anyOf": [{"type": "string"}, {"type": "null"}]})", "1", R"("1")"},
                            {R"({"anyOf": [{"type": "integer"}, {"type": "null"}]})", "1", "1"},
                            {R"({"oneOf": [{"type": "integer"}, {"type": "string"}]})", "1", R"("1")"},
                            {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "1", "1"},
                            {R"({"anyOf": [{"type": "integer"}, {}]})", "1", R"("1")"},
                            {R"({"anyOf": 3})", "1", "1"}}) {
    const boost::json::value schema = boost::json::parse(one.schema);
    EXPECT_EQ(tagged_value(one.text, &schema), one.json) << one.schema << " reads " << one.text;
  }
  EXPECT_EQ(tagged_value("12", nullptr), R"("12")") << "without a schema, the value is the text";
}

TEST(TaggedValue, MayBeTextUnlessTheSchemaExcludesStrings) {
  struct Allows {
    std::string_view schema;
    bool text;
  };
  for (const Allows& one : {Allows{"{}", true},
                            {R"({"type": "string"})", true},
                            {R"({"type": "integer"})", false},
                            {R"({"type": "null"})", false},
                            {R"({"type": ["integer", "string"]})", true},
                            {R"({"type": ["integer", "null"]})", false},
                            {R"({"const": "a"})", true},
                            {R"({"const": null})", false},
                            {R"({"enum": [1, "a"]})", true},
                            {R"({"enum": [1]})", false},
                            {R"({"anyOf": [{"type": "integer"}]})", false},
                            {R"({"anyOf": [{"type": "integer"}, {"title": "any"}]})", true},
                            {R"({"properties": {}})", true}}) {
    const boost::json::value schema = boost::json::parse(one.schema);
    EXPECT_EQ(may_be_text(&schema), one.text) << one.schema;
  }
  EXPECT_TRUE(may_be_text(nullptr));
  const auto nested = [](int levels) {
    boost::json::value schema = boost::json::parse(R"({"type": "integer"})");
    for (int i = 0; i < levels; ++i) schema = boost::json::object{{"anyOf", boost::json::array{schema}}};
    return schema;
  };
  const boost::json::value eight = nested(8), nine = nested(9);
  EXPECT_FALSE(may_be_text(&eight));
  EXPECT_TRUE(may_be_text(&nine)) << "a schema this deep allows any value";
}

TEST(TaggedValue, ArgumentsHaveTheirSchemaInTheTool) {
  Tool tool{.name = "f", .parameters = boost::json::parse(R"({"properties": {"a": {"type": "integer"}}, "b": {}})")};
  ASSERT_NE(schema_of_argument(&tool, "a"), nullptr);
  EXPECT_EQ(schema_of_argument(&tool, "a")->at("type"), "integer");
  EXPECT_EQ(schema_of_argument(&tool, "b"), nullptr);
  EXPECT_EQ(schema_of_argument(nullptr, "a"), nullptr);
  tool.parameters = nullptr;
  EXPECT_EQ(schema_of_argument(&tool, "a"), nullptr);
  tool.parameters = boost::json::parse(R"({"properties": ["a"]})");
  EXPECT_EQ(schema_of_argument(&tool, "a"), nullptr);
}

}  // namespace
}  // namespace quire
