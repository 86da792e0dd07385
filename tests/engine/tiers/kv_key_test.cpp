// Tests which files are keys of a deployment, and the errors of the others.
#include "engine/tiers/kv_key.h"

#include <gtest/gtest.h>

#include <fstream>

#include "runtime/tier/tier_support.h"

namespace quire {
namespace {

class KvKeyTest : public testing::Test {
 protected:
  Result<std::vector<std::byte>> key_of(const std::string& text) {
    std::ofstream(file_, std::ios::binary | std::ios::trunc) << text;
    return read_kv_key(file_, "kv_key");
  }
  std::string refusal_of(const std::string& text) {
    const auto key = key_of(text);
    return key ? "" : key.error().to_string();
  }

  const test::TempFolder folder_;
  const std::string file_ = folder_.file("key");
};

TEST_F(KvKeyTest, TakesAllBytesExceptAFinalLineFeed) {
  const std::string text = "16 bytes\n and\n..";
  ASSERT_EQ(text.size(), 16U);
  for (const std::string& content : {text, text + "\n"}) {
    const auto key = key_of(content);
    ASSERT_TRUE(key);
    EXPECT_TRUE(std::ranges::equal(*key, std::as_bytes(std::span(text))));
  }
  EXPECT_EQ(key_of(text + "\n\n").value().size(), 17U) << "only one line feed is removed";
  const std::string longest(4096, 'k');
  EXPECT_EQ(key_of(longest).value().size(), 4096U);
  EXPECT_EQ(key_of(longest + "\n").value().size(), 4096U);
}

TEST_F(KvKeyTest, RefusesKeysThatAreTooShortOrTooLong) {
  const std::string remedy = "; use a file of 16 to 4096 random bytes";
  EXPECT_EQ(refusal_of(""), "kv_key: " + file_ + " has 0 bytes" + remedy);
  EXPECT_EQ(refusal_of("fifteen bytes!!"), "kv_key: " + file_ + " has 15 bytes" + remedy);
  EXPECT_EQ(refusal_of("fifteen bytes!!\n"), "kv_key: " + file_ + " has 15 bytes" + remedy);
  EXPECT_EQ(refusal_of(std::string(4097, 'k')), "kv_key: " + file_ + " has too many bytes" + remedy);
  EXPECT_EQ(key_of("short").error().code, ErrorCode::invalid_argument);
}

TEST_F(KvKeyTest, RefusesFilesThatItCannotRead) {
  for (const std::string& file : {folder_.file("none"), folder_.path()}) {
    const auto key = read_kv_key(file, "kv_remote_key");
    ASSERT_FALSE(key) << file;
    EXPECT_EQ(key.error().code, ErrorCode::io);
    EXPECT_EQ(key.error().to_string(), "kv_remote_key: " + file + " cannot be read; use a file that this process can read");
  }
}

}  // namespace
}  // namespace quire
