#include "core/kv/block_hash.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <vector>

namespace quire {
namespace {

std::vector<BlockHash> chain(const std::vector<TokenId>& tokens, const ExtraKeys& extra, std::uint32_t block_size = 4,
                             std::string_view seed = "") {
  Sha256BlockHasher hasher(seed);
  std::vector<BlockHash> hashes;
  BlockHash parent = hasher.root();
  for (std::uint32_t i = 0; i + block_size <= tokens.size(); i += block_size) {
    parent = hasher.hash(parent, block_content(tokens, extra, i, block_size));
    hashes.push_back(parent);
  }
  return hashes;
}

std::vector<TokenId> count(TokenId n) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(n));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

TEST(BlockHash, IsTheDigestOfTheDocumentedBytes) {
  // root: tag 1, length 4, "seed". Block: root, tag 2, length 8, two tokens; tag 5, length 1, "s".
  const std::string root_bytes("\x01\x04\x00\x00\x00seed", 9);
  const Sha256Digest root = Sha256::of(std::as_bytes(std::span(root_bytes)));
  std::string bytes(reinterpret_cast<const char*>(root.data()), root.size());
  bytes += std::string("\x02\x08\x00\x00\x00\x07\x00\x00\x00\x01\x01\x00\x00\x05\x01\x00\x00\x00s", 19);
  const ExtraKeys extra{.lora_name = "", .multimodal = {}, .cache_salt = "s"};
  EXPECT_EQ(chain({7, 257}, extra, 2, "seed").at(0).bytes, Sha256::of(std::as_bytes(std::span(bytes))));
}

TEST(BlockHash, PlacesAnImageRelativeToItsBlock) {
  // Block: parent, tag 2, length 4, one token; tag 3, length 1, "l"; tag 4, length 3, "cat", the image began one token earlier.
  const ExtraKeys extra{.lora_name = "l", .multimodal = {{"cat", 1, 2}}, .cache_salt = ""};
  const auto hashes = chain({5, 6, 7}, extra, 1);
  std::string bytes(reinterpret_cast<const char*>(hashes[1].bytes.data()), 32);
  bytes += std::string("\x02\x04\x00\x00\x00\x07\x00\x00\x00", 9);
  bytes += std::string("\x03\x01\x00\x00\x00l", 6);
  bytes += std::string(
      "\x04\x03\x00\x00\x00"
      "cat"
      "\xFF\xFF\xFF\xFF",
      12);
  EXPECT_EQ(hashes[2].bytes, Sha256::of(std::as_bytes(std::span(bytes))));
}

TEST(BlockHash, DependsOnEveryTokenBeforeIt) {
  const auto base = chain(count(16), {});
  ASSERT_EQ(base.size(), 4U);
  auto tokens = count(16);
  tokens[5] = 99;
  const auto changed = chain(tokens, {});
  EXPECT_EQ(changed[0], base[0]);
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_NE(changed[i], base[i]);
  }
}

TEST(BlockHash, DependsOnTheSeed) {
  EXPECT_NE(chain(count(4), {}, 4, "a")[0], chain(count(4), {}, 4, "b")[0]);
}

TEST(BlockHash, SaltAndAdapterSeparateAllBlocks) {
  const auto base = chain(count(12), {});
  const auto salted = chain(count(12), {.lora_name = "", .multimodal = {}, .cache_salt = "x"});
  const auto adapted = chain(count(12), {.lora_name = "x", .multimodal = {}, .cache_salt = ""});
  for (std::size_t i = 0; i < base.size(); ++i) {
    EXPECT_NE(base[i], salted[i]);
    EXPECT_NE(base[i], adapted[i]);
    EXPECT_NE(salted[i], adapted[i]) << "the field is part of the name, not only its text";
  }
}

TEST(BlockHash, TextCannotMoveBetweenFields) {
  std::set<std::array<std::uint8_t, 32>> seen;
  const std::vector<ExtraKeys> variants{{.lora_name = "ab", .multimodal = {}, .cache_salt = "c"},
                                        {.lora_name = "a", .multimodal = {}, .cache_salt = "bc"},
                                        {.lora_name = "abc", .multimodal = {}, .cache_salt = ""},
                                        {.lora_name = "", .multimodal = {}, .cache_salt = "abc"}};
  for (const ExtraKeys& extra : variants) {
    seen.insert(chain(count(4), extra)[0].bytes);
  }
  EXPECT_EQ(seen.size(), variants.size());
}

TEST(BlockHash, ImagesCountWhereTheirTokensAre) {
  const auto base = chain(count(16), {});
  const auto with_image = chain(count(16), {.lora_name = "", .multimodal = {{"cat", 6, 4}}, .cache_salt = ""});
  EXPECT_EQ(with_image[0], base[0]) << "before the image nothing changes";
  const auto other_image = chain(count(16), {.lora_name = "", .multimodal = {{"dog", 6, 4}}, .cache_salt = ""});
  const auto moved = chain(count(16), {.lora_name = "", .multimodal = {{"cat", 5, 4}}, .cache_salt = ""});
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_NE(with_image[i], base[i]);
    EXPECT_NE(with_image[i], other_image[i]);
    EXPECT_NE(with_image[i], moved[i]) << "the same image elsewhere in the block is another content";
  }
}

TEST(BlockContent, NamesTheImagesThatOverlapTheBlock) {
  const auto tokens = count(20);
  const ExtraKeys extra{.lora_name = "", .multimodal = {{"a", 0, 2}, {"b", 3, 3}, {"c", 8, 9}}, .cache_salt = "s"};
  const auto identifiers = [&](std::uint32_t start) {
    std::string text;
    for (const auto& range : block_content(tokens, extra, start, 4).multimodal) {
      text += range.identifier;
    }
    return text;
  };
  EXPECT_EQ(identifiers(0), "ab");
  EXPECT_EQ(identifiers(4), "b");
  EXPECT_EQ(identifiers(8), "c");
  EXPECT_EQ(identifiers(16), "c");
  EXPECT_EQ(block_content(tokens, extra, 0, 4).cache_salt, "s");
  EXPECT_EQ(block_content(tokens, extra, 4, 4).cache_salt, "");
}

}  // namespace
}  // namespace quire
