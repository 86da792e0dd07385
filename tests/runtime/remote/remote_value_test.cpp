// A value is accepted only if it was sealed with the deployment's secret, under this key, with these bytes.
#include "runtime/remote/remote_value.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <vector>

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
