#include "base/base64.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace quire {
namespace {

TEST(Base64, EncodesTheTestVectorsOfTheStandard) {
  const std::pair<std::string, const char*> cases[] = {
      {"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foobar", "Zm9vYmFy"}, {"\xff\xfe\xfd", "//79"}, {"fooba", "Zm9vYmE="}};
  for (const auto& [bytes, text] : cases) EXPECT_EQ(base64_of(std::as_bytes(std::span(bytes))), text);
}

TEST(Base64, EncodesManyBytes) {
  const std::string bytes((std::size_t{3} << 20U) + 4, 'f');
  const std::string text = base64_of(std::as_bytes(std::span(bytes)));
  ASSERT_EQ(text.size(), (bytes.size() + 2) / 3 * 4);
  EXPECT_TRUE(text.ends_with("ZmZmZmZg=="));
}

TEST(Base64, DecodesExactlyAndRefusesInvalidText) {
  std::string bytes;
  for (std::size_t size = 0; size < 70; ++size, bytes += static_cast<char>(size * 37)) {
    const auto read = from_base64(base64_of(std::as_bytes(std::span(bytes))));
    ASSERT_TRUE(read.has_value()) << size;
    EXPECT_TRUE(std::ranges::equal(*read, std::as_bytes(std::span(bytes)))) << size;
  }
  for (const char* text : {"A", "AA", "AAA", "=", "====", "A===", "AA=A", "AB==", "AAB=", "AA A", "AA-_", "AAA\n"})
    EXPECT_FALSE(from_base64(text)) << text;
}

}  // namespace
}  // namespace quire
