// Tests pseudonyms of block hashes: SipHash with a key, for hashes of either size.
#include "core/journal/pseudonyms.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "base/digest.h"

namespace quire::test {
namespace {

// openssl mac -macopt hexkey:000102030405060708090a0b0c0d0e0f -macopt size:16 SIPHASH, of the bytes 0 to 31.
TEST(Pseudonyms, AreSipHash) {
  PseudonymKey key{.words = {0x0706050403020100U, 0x0F0E0D0C0B0A0908U}};
  BlockHash name;
  std::iota(name.bytes.begin(), name.bytes.end(), std::uint8_t{0});
  EXPECT_EQ(to_hex(pseudonym(key, name).bytes), "7c3956ca5eeafc3e363e9d556546eb687c3956ca5eeafc3e363e9d556546eb68");
  key.hash_bytes = 16;
  EXPECT_EQ(to_hex(pseudonym(key, name).bytes), "7c3956ca5eeafc3e363e9d556546eb6800000000000000000000000000000000");
}

TEST(Pseudonyms, OfSeveralHashesEqualThePseudonymOfEach) {
  for (const std::uint32_t hash_bytes : {16U, 32U}) {
    const PseudonymKey key{.words = {3, 4}, .hash_bytes = hash_bytes};
    std::vector<std::uint8_t> names(3 * hash_bytes + 5);
    std::iota(names.begin(), names.end(), std::uint8_t{0});
    const std::vector<std::uint8_t> others = pseudonyms(key, names);
    ASSERT_EQ(others.size(), names.size());
    for (std::size_t i = 0; i < 3; ++i) {
      BlockHash name;
      std::memcpy(name.bytes.data(), &names[i * hash_bytes], hash_bytes);
      EXPECT_EQ(std::memcmp(&others[i * hash_bytes], pseudonym(key, name).bytes.data(), hash_bytes), 0);
    }
    EXPECT_EQ(std::vector<std::uint8_t>(others.end() - 5, others.end()), std::vector<std::uint8_t>(5, 0))
        << "bytes after the last whole hash are zero";
  }
}

TEST(Pseudonyms, CoverTheLastHash) {
  const PseudonymKey key{.words = {3, 4}, .hash_bytes = 16};
  const std::vector<std::uint8_t> names(32, 7);
  const std::vector<std::uint8_t> others = pseudonyms(key, names);
  BlockHash name;
  std::memcpy(name.bytes.data(), names.data(), 16);
  for (const std::size_t at : {0U, 16U}) EXPECT_EQ(std::memcmp(&others[at], pseudonym(key, name).bytes.data(), 16), 0) << at;
  EXPECT_TRUE(pseudonyms(key, {}).empty());
}

}  // namespace
}  // namespace quire::test
