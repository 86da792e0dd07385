// Tests the fields of a JSON line: whole numbers, bounds, and the first error.
#include "lab/workload/json_line.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>

namespace quire {
namespace {

TEST(JsonLine, WholeNumbersMayHaveAPoint) {
  const std::pair<const char*, std::optional<std::uint64_t>> numbers[] = {{"0", 0},
                                                                          {"3", 3},
                                                                          {"3.0", 3},
                                                                          {"0.0", 0},

                                                                          {"9223372036854775807", 9223372036854775807},
                                                                          {"18446744073709551615", UINT64_MAX},

                                                                          {"1e300", {}},
                                                                          {"3.5", {}},
                                                                          {"-1", {}},
                                                                          {"-1.0", {}},
                                                                          {"true", {}},
                                                                          {"\"3\"", {}},
                                                                          {"null", {}}};
  for (const auto& [text, number] : numbers) EXPECT_EQ(whole_number(boost::json::parse(text)), number) << text;
  // Beyond this bound, a double cannot state every whole number.
  EXPECT_EQ(whole_number(boost::json::value(0x1p53 - 1.0)), 9007199254740991U);
  EXPECT_EQ(whole_number(boost::json::value(0x1p53)), std::nullopt);
}

TEST(JsonLine, FieldsHaveBoundsAndTheFirstErrorIsKept) {
  const boost::json::value value = boost::json::parse(R"({"five": 5, "half": 0.5, "word": "w", "list": [1, 2]})");
  const auto ask = [&](auto&& question) {
    std::string wrong;
    const JsonLine line(value.get_object(), wrong);
    return fmt::format("{} {}", question(line), wrong);
  };
  EXPECT_EQ(ask([](const JsonLine& line) { return line.count("five", 5, 5); }), "5 ");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.count("five", 6, 9); }), "6 `five` is not a whole number from 6 to 9");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.count("five", 1, 4); }), "1 `five` is not a whole number from 1 to 4");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.count("half", 2, 4); }), "2 `half` is not a whole number from 2 to 4");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.count("none", 3, 4); }), "3 `none` is missing");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.number("half", 0.5); }), "0.5 ");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.number("half", 0.75); }), "0.75 `half` is not a number of at least 0.75");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.number("word", -2.0); }), "-2 `word` is not a number of at least -2");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.number("none", 1.0); }), "1 `none` is missing");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.number_or("none", 1.0, 0.25); }), "0.25 ");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.number_or("half", 0.0, 0.25); }), "0.5 ");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.number_or("half", 1.0, 0.25); }), "1 `half` is not a number of at least 1");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.text("word"); }), "w ");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.text("five"); }), " ");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.text("none"); }), " ");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.has("word") && !line.has("none"); }), "true ");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.array("list") == nullptr ? 0 : line.array("list")->size(); }), "2 ");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.array("five") == nullptr; }), "true `five` is not a list");
  EXPECT_EQ(ask([](const JsonLine& line) { return line.count("five", 6, 9) + line.count("none", 0, 1); }),
            "6 `five` is not a whole number from 6 to 9");
}

}  // namespace
}  // namespace quire
