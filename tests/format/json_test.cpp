#include "format/json.h"

#include <gtest/gtest.h>

#include "format/temp_folder.h"

namespace quire {
namespace {

TEST(ParseJson, ReadsAValue) {
  const auto value = parse_json(R"({"a": [1, 2]})", "x.json");
  ASSERT_TRUE(value);
  EXPECT_EQ(value->at("a").as_array().size(), 2U);
}

TEST(ParseJson, RefusesWhatIsNoJson) {
  for (const std::string_view text : {"", "{", "[1,]", "{\"a\":1}x", "{\"a\":01}", "nul", "'a'", "\"\xff\"", "// no\n1", "[NaN]"}) {
    const auto value = parse_json(text, "x.json");
    ASSERT_FALSE(value) << text;
    EXPECT_EQ(value.error().code, ErrorCode::corrupt);
    EXPECT_EQ(value.error().field, "x.json");
    EXPECT_FALSE(value.error().remedy.empty());
  }
}

TEST(ParseJson, RefusesEveryCut) {
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

TEST(ParseJson, FindsKeysGivenTwiceWhereAsked) {
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

TEST_F(JsonRefTest, ErrorsNameThePath) {
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

TEST(ReadJsonFile, NamesTheFile) {
  const testing::TempFolder folder;
  const std::string path = folder.write("bad.json", "{");
  EXPECT_EQ(read_json_file(path).error().field, path);
  EXPECT_EQ(read_json_file(folder.path() + "/none").error().code, ErrorCode::not_found);
}

}  // namespace
}  // namespace quire
