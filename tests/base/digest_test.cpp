#include "base/digest.h"

#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

std::string hex_of(const std::string& text) {
  return to_hex(Sha256::of(std::as_bytes(std::span(text))));
}

TEST(Sha256, GivesThePublishedDigests) {
  EXPECT_EQ(hex_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex_of(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, ResetsAfterFinishAndAcceptsInputInPieces) {
  Sha256 sha;
  const std::string text = "abc";
  for (int round = 0; round < 3; ++round) {
    for (const char& c : text) sha.update(std::as_bytes(std::span(&c, 1)));
    EXPECT_EQ(to_hex(sha.finish()), hex_of("abc"));
  }
}

}  // namespace
}  // namespace quire
