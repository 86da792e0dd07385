// Tests how a body is parsed, and how errors show its values and names.
#include "server/request/object_reader.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/request/request_bodies.h"

namespace quire {
namespace {

TEST(ObjectReader, ShowsShortValuesAndNamesTheKindOfLongOnes) {
  EXPECT_EQ(describe(nullptr), "null null");
  EXPECT_EQ(describe(true), "boolean true");
  EXPECT_EQ(describe(-7), "integer -7");
  EXPECT_EQ(describe(std::uint64_t{18446744073709551615U}), "integer 18446744073709551615");
  EXPECT_EQ(describe(0.5), "number 5E-1");
  EXPECT_EQ(describe(boost::json::array{1}), "array");
  EXPECT_EQ(describe(boost::json::object{}), "object");
  EXPECT_EQ(describe(boost::json::value(std::string(58, 'x'))), "string " + quoted_text(58));
  EXPECT_EQ(describe(boost::json::value(std::string(59, 'x'))), "string");
}

TEST(ObjectReader, AcceptsSixtyFourLevels) {
  const auto nested = [](std::size_t levels) { return R"({"a": )" + std::string(levels, '[') + std::string(levels, ']') + "}"; };
  EXPECT_TRUE(parse_object(nested(63)));
  const auto deep = parse_object(nested(64));
  ASSERT_FALSE(deep);
  EXPECT_EQ(deep.error().to_string(), "the body is nested more than 64 levels deep; send JSON with fewer levels");
  EXPECT_EQ(parse_object("[]").error().to_string(), "the body is a JSON array; send a JSON object");
  EXPECT_EQ(parse_object("3").error().to_string(), "the body is a JSON integer; send a JSON object");
  EXPECT_EQ(parse_object("{} x").error().to_string(), "the body is not JSON: extra data at byte 3; send a JSON object in UTF-8");
  EXPECT_TRUE(parse_object("{} \t\r\n")) << "white space may follow";
  EXPECT_EQ(parse_object(R"({"a": [1e999]})").error().to_string(),
            "a: is or contains a number outside the range of 64-bit floats; send numbers up to 1.7e308");
  EXPECT_EQ(parse_object(R"({")" + std::string(101, 'a') + R"(": 1e999})").error().field, std::string(100, 'a'));
}

TEST(ObjectReader, CutsLongNamesAndReplacesCharactersThatHeadersCannotContain) {
  const auto request = chat_request(kHiMessage + R"(, ")" + std::string(101, 'q') + R"(": 1, "Q !~\u007f,Q\u00e9": 2)");
  ASSERT_TRUE(request) << request.error().to_string();
  EXPECT_EQ(request->ignored, (std::vector<std::string>{std::string(100, 'q'), "Q?!~??Q??"}));
  const auto unknown = text_request(kHiPrompt + R"(, "repetition_detection": {")" + std::string(101, 'q') + R"(": 1})");
  EXPECT_EQ(unknown.error().field, "repetition_detection." + std::string(100, 'q'));
}

}  // namespace
}  // namespace quire
