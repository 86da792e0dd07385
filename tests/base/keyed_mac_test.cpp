#include "base/keyed_mac.h"

#include <gtest/gtest.h>

#include <string_view>

namespace quire {
namespace {

std::span<const std::byte> text_bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Test cases 1 and 2 of RFC 4231; the object is reset after each.
TEST(KeyedMac, IsHmacSha256) {
  KeyedMac first(std::vector(20, std::byte{0x0b}));
  KeyedMac second(text_bytes("Jefe"));
  for (int i = 0; i < 2; ++i) {
    first.update(text_bytes("Hi "));
    first.update(text_bytes("There"));
    EXPECT_EQ(to_hex(first.finish()), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    second.update(text_bytes("what do ya want for nothing?"));
    EXPECT_EQ(to_hex(second.finish()), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  }
  EXPECT_TRUE(KeyedMac::are_equal(text_bytes("same"), text_bytes("same")));
  EXPECT_FALSE(KeyedMac::are_equal(text_bytes("same"), text_bytes("some")));
  EXPECT_FALSE(KeyedMac::are_equal(text_bytes("same"), text_bytes("same.")));
}

}  // namespace
}  // namespace quire
