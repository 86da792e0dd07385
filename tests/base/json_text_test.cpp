#include "base/json_text.h"

#include <gtest/gtest.h>

#include <limits>

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

}  // namespace
}  // namespace quire
