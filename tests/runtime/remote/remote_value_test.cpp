// A value is accepted only if it was sealed with the deployment's secret, under this key, with these bytes.
#include "runtime/remote/remote_value.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/keyed_mac.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

std::vector<std::byte> secret_of_text(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> sealed_block(RemoteValueCodec& seal, std::string_view key, std::size_t bytes) {
  std::vector<std::byte> value(remote_value_bytes(bytes));
  std::ranges::copy(tier_block(5, bytes), value.begin() + kRemoteHeaderBytes);
  seal.seal(key, value);
  return value;
}

TEST(RemoteValue, OpensABlockOnlyUnderItsKey) {
  RemoteValueCodec seal(secret_of_text("sixteen bytes!!!")), other(secret_of_text("sixteen bytes!!?"));
  std::vector<std::byte> value = sealed_block(seal, "key", 1000);
  const auto block = seal.open("key", value, 1000);
  ASSERT_TRUE(block);
  EXPECT_TRUE(std::ranges::equal(*block, tier_block(5, 1000)));
  EXPECT_FALSE(seal.open("kez", value, 1000));
  EXPECT_FALSE(seal.open("keyq", value, 1000));
  EXPECT_FALSE(seal.open("key", value, 999));
  EXPECT_FALSE(other.open("key", value, 1000)) << "the value is from another deployment";
}

TEST(RemoteValue, RefusesAValueWithAnyChangedByte) {
  RemoteValueCodec seal(secret_of_text("sixteen bytes!!!"));
  std::vector<std::byte> value = sealed_block(seal, "key", 24);
  for (std::size_t i = 0; i < value.size(); ++i)
    for (unsigned bit = 0; bit < 8; ++bit) {
      value[i] ^= std::byte{1} << bit;
      EXPECT_FALSE(seal.open("key", value, 24)) << i;
      value[i] ^= std::byte{1} << bit;
    }
  EXPECT_TRUE(seal.open("key", value, 24));
  for (std::size_t size = 0; size < value.size(); ++size) EXPECT_FALSE(seal.open("key", std::span(value).first(size), 24));
  value.push_back(std::byte{0});
  EXPECT_FALSE(seal.open("key", value, 24));
}

TEST(RemoteValue, HasALengthOfFourBytes) {
  RemoteValueCodec seal(secret_of_text("sixteen bytes!!!"));
  std::vector<std::byte> value(remote_value_bytes(0x01020304));
  seal.seal("key", value);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(std::to_integer<unsigned>(value[12 + i]), 4 - i) << i;
}

// Other versions and other servers read these bytes.
TEST(RemoteValue, HasTheDescribedBytes) {
  const std::vector<std::byte> secret = secret_of_text("sixteen bytes!!!");
  RemoteValueCodec seal(secret);
  constexpr std::size_t kBytes = 0x010203;
  const std::vector<std::byte> value = sealed_block(seal, "key", kBytes);
  ASSERT_EQ(value.size(), 16 + kBytes + 32);
  const std::array<unsigned, 16> head = {'q', 'u', 'i', 'r', 'e', '-', 'k', 'v', 1, 0, 0, 0, 3, 2, 1, 0};
  for (std::size_t i = 0; i < head.size(); ++i) EXPECT_EQ(std::to_integer<unsigned>(value[i]), head[i]) << i;
  KeyedMac mac(secret);
  mac.update(secret_of_text(std::string_view("\3\0\0\0key", 7)));
  mac.update(std::span(value).first(value.size() - 32));
  const Sha256Digest digest = mac.finish();
  EXPECT_TRUE(std::ranges::equal(std::span(value).last(32), std::as_bytes(std::span(digest))));
}

TEST(RemoteValue, RefusesAnotherVersionOrLengthEvenWithARightMac) {
  const std::vector<std::byte> secret = secret_of_text("sixteen bytes!!!");
  RemoteValueCodec seal(secret);
  for (std::size_t at = 0; at <= 16; ++at) {
    std::vector<std::byte> value = sealed_block(seal, "key", 24);
    value[at] ^= std::byte{1};
    KeyedMac mac(secret);
    mac.update(secret_of_text(std::string_view("\3\0\0\0key", 7)));
    mac.update(std::span(value).first(value.size() - 32));
    const Sha256Digest digest = mac.finish();
    std::ranges::copy(std::as_bytes(std::span(digest)), value.end() - 32);
    EXPECT_EQ(seal.open("key", value, 24).has_value(), at == 16) << at << ": the block begins at byte 16";
  }
}

TEST(RemoteKeys, HaveTheDescribedText) {
  const std::vector<std::byte> secret = secret_of_text("sixteen bytes!!!");
  OffloadKey name{.hash = {}, .group = 12};
  name.hash.fill(0xab);
  name.hash[0] = 0x05;
  KeyedMac mac(secret);
  mac.update(secret_of_text("deployment"));
  const Sha256Digest digest = mac.finish();
  std::string shown;
  for (std::size_t i = 0; i < 8; ++i) shown += fmt::format("{:02x}", digest[i]);
  std::string fingerprint, hash = "05";
  for (int i = 0; i < 32; ++i) fingerprint += "1f";
  for (int i = 0; i < 31; ++i) hash += "ab";
  EXPECT_EQ(RemoteKeys(secret, tier_fingerprint(0x1f)).key_of(name), "quire:" + shown + ":" + fingerprint + ":" + hash + ":12");
}

TEST(RemoteValueDeathTest, SealsNoEmptyBlock) {
  RemoteValueCodec seal(secret_of_text("sixteen bytes!!!"));
  std::vector<std::byte> value(remote_value_bytes(0));
  EXPECT_DEATH(seal.seal("key", value), "room for a block");
  value.resize(remote_value_bytes(1));
  seal.seal("key", value);
  EXPECT_TRUE(seal.open("key", value, 1));
}

TEST(RemoteKeys, DifferByDeploymentModelBlockAndGroup) {
  const RemoteKeys keys(secret_of_text("sixteen bytes!!!"), tier_fingerprint(1));
  const OffloadKey name = tier_name(1);
  OffloadKey group = name;
  ++group.group;
  EXPECT_EQ(keys.key_of(name), RemoteKeys(secret_of_text("sixteen bytes!!!"), tier_fingerprint(1)).key_of(name));
  EXPECT_NE(keys.key_of(name), keys.key_of(tier_name(2)));
  EXPECT_NE(keys.key_of(name), keys.key_of(group));
  EXPECT_NE(keys.key_of(name), RemoteKeys(secret_of_text("sixteen bytes!!!"), tier_fingerprint(2)).key_of(name));
  EXPECT_NE(keys.key_of(name), RemoteKeys(secret_of_text("sixteen bytes!!?"), tier_fingerprint(1)).key_of(name));
}

}  // namespace
}  // namespace quire::test
