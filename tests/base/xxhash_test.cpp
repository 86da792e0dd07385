#include "base/xxhash.h"

#include <gtest/gtest.h>

#include <string>

#include "base/digest.h"

namespace quire {
namespace {

std::string xxhash_hex(const std::string& text) {
  return to_hex(xxh3_128(std::as_bytes(std::span(text))));
}

// These are the digests that `xxhsum -H2` and Python's xxhash print.
TEST(Xxh3, GivesThePublishedDigests) {
  if (!xxhash_available()) GTEST_SKIP() << "built without libxxhash";
  EXPECT_EQ(xxhash_hex(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(xxhash_hex("abc"), "06b05ab6733a618578af5f94892f3950");
  EXPECT_EQ(xxhash_hex(std::string(1000, 'a')), "b01da365eddaa29cb3e7af627147db7c");
}

}  // namespace
}  // namespace quire
