#include "base/json_writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace quire {
namespace {

TEST(JsonText, EscapesRequiredCharacters) {
  EXPECT_EQ(json_string("a\"b\\c\n\r\t\f\b\x01\x1F\x7Fé"), R"("a\"b\\c\n\r\t\f\b\u0001\u001f)"
                                                           "\x7F"
                                                           R"(é")");
  std::string out = "x";
  append_json_escaped(out, "\"");
  EXPECT_EQ(out, "x\\\"");
}

TEST(JsonText, WritesNaNAndInfLikeVllm) {
  std::string out;
  append_json_float(out, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(out, "-9999");
}

// Writes an object with every kind of value, nested, and returns it.
std::string example() {
  const std::vector<std::optional<int>> numbers = {1, std::nullopt, -3};
  std::string out = "data: ";
  JsonWriter json(out);
  json.begin_object().field("text", "a\"b").field("yes", true).field("no", false).field("nothing", nullptr).field("numbers", numbers);
  json.begin_array("empty").end_array().begin_object("nested").field("half", 0.5).field("tenth", 0.1F).end_object();
  json.fixed_field("seconds", 1.0 / 3.0, 2).raw_field("raw", "[1]").raw("").raw(R"("x":1,"y":2)").field("last", std::string("e"));
  json.end_object();
  return out;
}

TEST(JsonWriter, PutsACommaBetweenValuesAndNowhereElse) {
  EXPECT_EQ(example(), R"(data: {"text":"a\"b","yes":true,"no":false,"nothing":null,"numbers":[1,null,-3],"empty":[],"nested":{"half":0.5,)"
                       R"("tenth":0.1},"seconds":0.33,"raw":[1],"x":1,"y":2,"last":"e"})");
}

TEST(JsonWriter, SeveralWritersTakeTurnsOnOneText) {
  std::string out;
  JsonWriter(out).begin_array().value("a");
  JsonWriter(out).value(1).value(std::string_view("b"));
  JsonWriter(out).end_array();
  EXPECT_EQ(out, R"(["a",1,"b"])");
}

TEST(JsonWriter, EscapesNamesAndTexts) {
  EXPECT_EQ(json_object([](JsonWriter& json) { json.field("a\"", "\n"); }), R"({"a\"":"\n"})");
}

TEST(JsonWriter, WritesDoublesThatJsonHasNotAsNull) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(json_object([&](JsonWriter& json) {
              json.field("a", infinity).field("b", -infinity).field("c", std::numeric_limits<double>::quiet_NaN());
            }),
            R"({"a":null,"b":null,"c":null})");
}

TEST(JsonWriter, NumbersReadBackAsTheSameNumbers) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 10'000; ++i) {
    const double value = std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 200) - 160);
    std::string out;
    JsonWriter(out).value(value);
    ASSERT_EQ(std::stod(out), value) << out;
    std::string whole;
    const auto number = static_cast<std::int64_t>(random());
    JsonWriter(whole).value(number);
    ASSERT_EQ(whole, std::to_string(number));
  }
}

TEST(JsonWriter, EmptyTextIsNullWhereAsked) {
  EXPECT_EQ(json_object([](JsonWriter& json) { json.field("a", unless_empty("")).field("b", unless_empty("x")); }),
            R"({"a":null,"b":"x"})");
}

}  // namespace
}  // namespace quire
