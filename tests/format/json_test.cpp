#include "format/json.h"

#include <gtest/gtest.h>

#include <cmath>

#include "format/temp_folder.h"

namespace quire {
namespace {

TEST(ParseJson, ReadsAValue) {
  const auto value = parse_json(R"({"a": [1, 2]})", "x.json");
  ASSERT_TRUE(value);
  EXPECT_EQ(value->at("a").as_array().size(), 2U);
}

TEST(ParseJson, RefusesInvalidJson) {
  for (const std::string_view text : {"", "{", "[1,]", "{\"a\":1}x", "{\"a\":01}", "nul", "'a'", "\"\xff\"", "// no\n1", "[NaN]"}) {
    const auto value = parse_json(text, "x.json");
    ASSERT_FALSE(value) << text;
    EXPECT_EQ(value.error().code, ErrorCode::corrupt);
    EXPECT_EQ(value.error().field, "x.json");
    EXPECT_FALSE(value.error().remedy.empty());
  }
}

TEST(ParseJson, RefusesEveryTruncation) {
  const std::string text = R"({"weight": {"dtype": "F32", "shape": [2, -3.5e2], "x": null, "y": true}})";
  for (std::size_t size = 0; size < text.size(); ++size) EXPECT_FALSE(parse_json(std::string(text, 0, size), "x")) << size;
  EXPECT_TRUE(parse_json(text, "x"));
}

TEST(ParseJson, HasLimits) {
  const JsonLimits limits{.max_bytes = 20, .max_depth = 3};
  EXPECT_TRUE(parse_json("[[[1]]]", "x", limits));
  EXPECT_EQ(parse_json("[[[[1]]]]", "x", limits).error().code, ErrorCode::corrupt);
  EXPECT_EQ(parse_json(std::string(21, ' '), "x", limits).error().code, ErrorCode::too_large);
  EXPECT_FALSE(parse_json(std::string(1 << 20, '['), "x"));
}

TEST(ParseJson, ReadsPythonsNaNAndInfinityOnRequest) {
  const auto value =
      parse_json(R"({"a": [0.0, Infinity], "b": -Infinity, "c": {"d" : NaN}, "e": "NaN \" Infinity", "f": "\\"})", "x", kPythonJson);
  ASSERT_TRUE(value) << value.error().to_string();
  EXPECT_EQ(value->at("a").as_array()[1].as_double(), INFINITY);
  EXPECT_EQ(value->at("b").as_double(), -INFINITY);
  EXPECT_TRUE(std::isnan(value->at("c").at("d").as_double()));
  EXPECT_EQ(value->at("e").as_string(), "NaN \" Infinity");
  EXPECT_TRUE(parse_json("Infinity", "x", kPythonJson)->is_double());
  const auto tagged = parse_json(R"([{"__float__": "Infinity"}, {"__float__": "1.5"}, {"__float__": "NaN", "x": 1}])", "x", kPythonJson);
  ASSERT_TRUE(tagged);
  EXPECT_EQ(tagged->at(0).as_double(), INFINITY) << "the format of transformers 5";
  EXPECT_TRUE(tagged->at(1).is_object() && tagged->at(2).is_object());
  EXPECT_TRUE(parse_json(R"({"__float__": "Infinity"})", "x")->is_object());
}

TEST(ParseJson, RefusesMisplacedNaNAndInfinity) {
  for (const std::string_view text : {"{NaN: 1}", "{Infinity : 1}", "NaNNaN", "1NaN", "-NaN", "+Infinity", "[Infinity 1]", "infinity",
                                      "[nan]", "\"NaN", "{\"a\": -Infinity", "[\"\x7f\", NaN]"})
    EXPECT_FALSE(parse_json(text, "x", kPythonJson)) << text;
  const auto error = parse_json("{\"a\": Infinity, \"b\": }", "x", kPythonJson).error();
  EXPECT_NE(error.message.find("near byte 21"), std::string::npos) << error.message;
  EXPECT_FALSE(parse_json("[Infinity]", "x")) << "Python's numbers are off by default";
}

TEST(ParseJson, DetectsDuplicateKeysOnRequest) {
  const JsonLimits strict{.reject_duplicate_keys = true};
  for (const std::string_view text : {R"({"a":1,"a":2})", R"({"x":[{"b":1},{"a":{},"\u0061":2}]})"}) {
    EXPECT_TRUE(parse_json(text, "x"));
    const auto value = parse_json(text, "x", strict);
    ASSERT_FALSE(value) << text;
    EXPECT_NE(value.error().message.find("'a'"), std::string::npos);
  }
  EXPECT_TRUE(parse_json(R"({"a":{"a":1},"b":[{"a":1},{"a":2}]})", "x", strict));
}

class JsonRefTest : public ::testing::Test {
 protected:
  boost::json::value value_ = parse_json(R"({"text": "t", "int": -3, "big": 18446744073709551615, "float": 2.5, "flag": true, "none": null,
                                             "list": [{"x": 1}, {"x": "one"}], "rope": {"factor": "8"}})",
                                         "config.json")
                                  .value();
  JsonRef root_{value_, "config.json"};
};

TEST_F(JsonRefTest, ReadsTypedMembers) {
  EXPECT_EQ(root_.get<std::string>("text").value(), "t");
  EXPECT_EQ(root_.get<std::int32_t>("int").value(), -3);
  EXPECT_EQ(root_.get<double>("int").value(), -3.0);
  EXPECT_EQ(root_.get<std::uint64_t>("big").value(), ~std::uint64_t{0});
  EXPECT_EQ(root_.get<float>("float").value(), 2.5F);
  EXPECT_TRUE(root_.get<bool>("flag").value());
}

TEST_F(JsonRefTest, NullAndMissingAreAbsent) {
  EXPECT_FALSE(root_.find("none"));
  EXPECT_EQ(root_.get_optional<int>("nowhere").value(), std::nullopt);
  EXPECT_EQ(root_.get_or<int>("none", 5).value(), 5);
  EXPECT_FALSE(root_.get_or<int>("text", 5));
}

TEST_F(JsonRefTest, ErrorsReportThePath) {
  EXPECT_EQ(root_.at("rope")->get<int>("factor").error().field, "config.json: rope.factor");
  EXPECT_EQ((*root_.at("list")->elements())[1].get<int>("x").error().field, "config.json: list[1].x");
  EXPECT_EQ(root_.at("nowhere").error().field, "config.json: nowhere");
  EXPECT_EQ(root_.at("text")->at("deeper").error().field, "config.json: text");
  EXPECT_EQ(root_.at("text")->elements().error().field, "config.json: text");
}

TEST_F(JsonRefTest, NumbersOutOfRangeAreRefused) {
  EXPECT_FALSE(root_.get<std::uint32_t>("int"));
  EXPECT_FALSE(root_.get<std::int64_t>("big"));
  EXPECT_FALSE(root_.get<std::uint8_t>("big"));
  EXPECT_FALSE(root_.get<int>("float"));
  EXPECT_FALSE(root_.get<int>("flag"));
}

TEST(ReadJsonFile, ReportsTheFile) {
  const testing::TempFolder folder;
  const std::string path = folder.write("bad.json", "{");
  EXPECT_EQ(read_json_file(path).error().field, path);
  EXPECT_EQ(read_json_file(folder.path() + "/none").error().code, ErrorCode::not_found);
}

}  // namespace
}  // namespace quire
