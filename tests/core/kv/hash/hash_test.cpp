#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "base/digest.h"
#include "base/random.h"
#include "base/xxhash.h"
#include "core/kv/hash/hash_bytes.h"
#include "core/kv/hash/hash_encode.h"
#include "core/kv/hash/hash_function.h"
#include "core/kv/hash/hash_list.h"

namespace quire::test {
namespace {

std::string hex_of(const HashBytes& bytes) {
  return to_hex(bytes.view());
}

std::vector<TokenId> count(TokenId n) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(n));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

std::unique_ptr<HashFunction> function_of(HashAlgorithm algorithm, std::string seed = "0") {
  auto function = make_hash_function({.algorithm = algorithm, .seed = std::move(seed), .root = {}, .extra_keys = nullptr});
  return function ? std::move(*function) : nullptr;
}

std::vector<BlockHash> block_hashes_of(const RequestContent& content, std::uint32_t block_size = 4, std::string seed = "0",
                                       HashAlgorithm algorithm = HashAlgorithm::canonical) {
  std::vector<BlockHash> hashes;
  hash_full_blocks(*function_of(algorithm, std::move(seed)), content, block_size, hashes);
  return hashes;
}

RequestContent content_of(std::span<const TokenId> tokens) {
  return {.tokens = tokens, .lora_name = {}, .multimodal = {}, .cache_salt = {}, .prompt_embeds = {}};
}

constexpr std::array kAlgorithms{HashAlgorithm::canonical, HashAlgorithm::sha256, HashAlgorithm::sha256_cbor, HashAlgorithm::xxhash,
                                 HashAlgorithm::xxhash_cbor};

TEST(EncodePickle, WritesTheBytesOfPickle) {
  HashBytes bytes;
  const std::array<std::uint8_t, 2> parent{0xAA, 0xBB};
  const std::array<TokenId, 4> tokens{1, 300, 70000, -1};
  const HashInput input{.tokens = tokens, .start = 16, .lora_name = "l", .multimodal = {}, .cache_salt = "", .embeds_digest = {}};
  encode_pickle(parent, input, bytes);
  EXPECT_EQ(hex_of(bytes),
            "800595"
            "2000000000000000"
            "4302aabb94"
            "28"
            "4b01"
            "4d2c01"
            "4a70110100"
            "4affffffff"
            "7494"
            "8c016c94"
            "8594"
            "8794"
            "2e");
}

TEST(EncodeCbor, WritesTheShortestForms) {
  HashBytes bytes;
  const std::array<std::uint8_t, 2> parent{0xAA, 0xBB};
  const std::array<TokenId, 5> tokens{23, 24, 256, 65536, -25};
  const std::vector<MultimodalFeature> items{{"i", PlaceholderRange(10, 8)}};
  const HashInput input{.tokens = tokens, .start = 16, .lora_name = "", .multimodal = items, .cache_salt = "", .embeds_digest = {}};
  encode_cbor(parent, input, bytes);
  EXPECT_EQ(hex_of(bytes),
            "8342aabb85171818190100"
            "1a00010000"
            "3818"
            "81"
            "8261"
            "69"
            "25");
}

TEST(EncodePickle, AcceptsAnItemThatBeginsFarBeforeItsBlock) {
  const std::array<std::uint8_t, 1> parent{0xAA};
  const std::array<TokenId, 1> tokens{7};
  const std::vector<MultimodalFeature> items{{"i", PlaceholderRange(0, 4100000000)}};
  const HashInput input{.tokens = tokens, .start = 4000000000, .lora_name = "", .multimodal = items, .cache_salt = "", .embeds_digest = {}};
  HashBytes bytes;
  encode_pickle(parent, input, bytes);
  EXPECT_EQ(hex_of(bytes), "8005951a000000000000004301aa944b0785948c0169948a0500d89411ff8694859487942e");
  encode_cbor(parent, input, bytes);
  EXPECT_EQ(hex_of(bytes), "8341aa8107818261693aee6b27ff");
}

TEST(EncodeCanonical, WritesTagLengthAndBytes) {
  HashBytes bytes;
  const std::array<std::uint8_t, 1> parent{0xAA};
  const std::array<TokenId, 1> tokens{257};
  const std::vector<MultimodalFeature> items{{"cat", PlaceholderRange(1, 2)}};
  const HashInput input{.tokens = tokens, .start = 2, .lora_name = "l", .multimodal = items, .cache_salt = "s", .embeds_digest = {}};
  encode_canonical(parent, input, bytes);
  EXPECT_EQ(hex_of(bytes),
            "aa"
            "020400000001010000"
            "03010000006c"
            "0403000000636174ffffffff"
            "050100000073");
  encode_canonical("seed", bytes);
  const std::string root = hex_of(bytes);
  encode_canonical("seed", bytes);
  EXPECT_EQ(hex_of(bytes), root) << "the previous content is replaced";
}

TEST(HashBytes, GrowsAndKeepsWhatWasWritten) {
  HashBytes bytes;
  for (int i = 0; i < 1000; ++i) {
    bytes.put(static_cast<std::uint8_t>(i));
    bytes.put(big_endian<2>(static_cast<std::uint64_t>(i)));
    bytes.put_low_bytes(0x0403020100ULL + static_cast<std::uint64_t>(i), 3);
  }
  bytes.erase(0, 6);
  bytes.overwrite(0, std::array<std::uint8_t, 1>{0xFF});
  ASSERT_EQ(bytes.size(), 5994U);
  EXPECT_EQ(to_hex(bytes.view().first(6)), "ff0001010102");
  EXPECT_EQ(to_hex(bytes.view().last(6)), "e703e7e70402");
  bytes.clear();
  EXPECT_TRUE(bytes.view().empty());
}

TEST(HashFunction, ComputesEqualHashesInOneCallAndInManyCalls) {
  const auto tokens = count(67);
  for (HashAlgorithm algorithm : kAlgorithms) {
    const auto function = function_of(algorithm);
    if (function == nullptr) continue;
    std::vector<BlockHash> step_by_step;
    for (std::size_t known = 0; known <= tokens.size(); ++known) {
      hash_full_blocks(*function, content_of(std::span(tokens).first(known)), 4, step_by_step);
      EXPECT_EQ(step_by_step.size(), known / 4);
    }
    EXPECT_EQ(step_by_step, block_hashes_of(content_of(tokens), 4, "0", algorithm));
  }
}

TEST(HashFunction, DependsOnEveryEarlierTokenAndOnTheSeed) {
  Random random(1);
  for (HashAlgorithm algorithm : kAlgorithms) {
    if (function_of(algorithm) == nullptr) continue;
    auto tokens = count(32);
    const auto base = block_hashes_of(content_of(tokens), 4, "0", algorithm);
    const std::size_t changed = random.below(tokens.size());
    tokens[changed] += 1000;
    const auto other = block_hashes_of(content_of(tokens), 4, "0", algorithm);
    const auto reseeded = block_hashes_of(content_of(tokens), 4, "1", algorithm);
    for (std::size_t i = 0; i < base.size(); ++i) {
      EXPECT_EQ(other[i] == base[i], i < changed / 4);
      EXPECT_NE(reseeded[i], other[i]);
    }
  }
}

TEST(HashFunction, SeparatesTheFields) {
  const auto tokens = count(4);
  const std::vector<MultimodalFeature> image{{"abc", PlaceholderRange(0, 1)}};
  for (HashAlgorithm algorithm : kAlgorithms) {
    if (function_of(algorithm) == nullptr) continue;
    std::set<std::array<std::uint8_t, 32>> seen;
    const auto add = [&](std::string_view lora, std::string_view salt, std::span<const MultimodalFeature> items) {
      const RequestContent content{.tokens = tokens, .lora_name = lora, .multimodal = items, .cache_salt = salt, .prompt_embeds = {}};
      seen.insert(block_hashes_of(content, 4, "0", algorithm)[0].bytes);
    };
    add("ab", "c", {});
    add("a", "bc", {});
    add("", "", image);
    EXPECT_EQ(seen.size(), 3U);
    // vLLM's modes do not distinguish an adapter name from a salt: the keys are a plain tuple.
    add("abc", "", {});
    add("", "abc", {});
    EXPECT_EQ(seen.size(), algorithm == HashAlgorithm::canonical ? 5U : 4U);
  }
}

TEST(HashFunction, IncludesTheSaltInTheFirstBlockOnly) {
  const auto tokens = count(8);
  RequestContent content = content_of(tokens);
  content.cache_salt = "s";
  HashInputs inputs(content, 4, 0);
  EXPECT_EQ(inputs.next()->cache_salt, "s");
  EXPECT_EQ(inputs.next()->cache_salt, "");
  EXPECT_FALSE(inputs.next());
}

TEST(HashFunction, IncludesItemsInAllBlocksThatTheyOverlap) {
  const auto tokens = count(20);
  const std::vector<MultimodalFeature> items{{"a", PlaceholderRange(0, 2)}, {"b", PlaceholderRange(3, 3)}, {"c", PlaceholderRange(8, 9)}};
  RequestContent content = content_of(tokens);
  content.multimodal = items;
  HashInputs inputs(content, 4, 0);
  std::vector<std::string> seen;
  while (const auto input = inputs.next()) {
    std::string& text = seen.emplace_back();
    for (const auto& item : input->multimodal) text += item.identifier + std::to_string(input->placed(item));
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"a0b3", "b-1", "c0", "c-4", "c-8"}));
}

// A hash function given by the host, for blocks that Python must hash.
class MarkingHash final : public HashFunction {
 public:
  BlockHash hash(const BlockHash* parent, const HashInput& input) override {
    BlockHash hash;
    hash.bytes[0] = static_cast<std::uint8_t>(input.num_extra_keys());
    hash.bytes[1] = parent == nullptr ? 1 : 2;
    return hash;
  }
};

TEST(HashFunction, CallsTheSeamForBlocksWithExtraKeys) {
  MarkingHash marking;
  auto function = make_hash_function({.algorithm = HashAlgorithm::sha256, .seed = "0", .root = {}, .extra_keys = &marking});
  const auto tokens = count(8);
  RequestContent content = content_of(tokens);
  content.cache_salt = "s";
  std::vector<BlockHash> hashes;
  hash_full_blocks(**function, content, 4, hashes);
  EXPECT_EQ(hashes[0].bytes[0], 1);
  EXPECT_EQ(hashes[0].bytes[1], 1);
  // The second block has no extra keys. It is pickled here, with the given hash as its parent.
  const HashInput second{
      .tokens = std::span(tokens).subspan(4), .start = 4, .lora_name = {}, .multimodal = {}, .cache_salt = {}, .embeds_digest = {}};
  HashBytes bytes;
  encode_pickle(hashes[0].bytes, second, bytes);
  EXPECT_EQ(hashes[1].bytes, Sha256::of(std::as_bytes(bytes.view())));
}

TEST(HashFunction, AGivenRootReplacesTheSeed) {
  const auto tokens = count(4);
  const RequestContent content = content_of(tokens);
  const auto name = [&](HashAlgorithm algorithm, const std::string& seed, const std::vector<std::uint8_t>& root) {
    const auto function = make_hash_function({.algorithm = algorithm, .seed = seed, .root = root, .extra_keys = nullptr}).value();
    std::vector<BlockHash> hashes;
    hash_full_blocks(*function, content, 4, hashes);
    return hashes.at(0);
  };
  const std::vector<std::uint8_t> root(32, 7);
  std::vector<std::uint8_t> other = root;
  other.back() = 8;
  for (HashAlgorithm algorithm : {HashAlgorithm::sha256, HashAlgorithm::xxhash}) {
    if (algorithm == HashAlgorithm::xxhash && !xxhash_available()) continue;
    EXPECT_EQ(name(algorithm, "x", root), name(algorithm, "y", root));
    EXPECT_NE(name(algorithm, "x", root), name(algorithm, "x", {}));
    EXPECT_NE(name(algorithm, "x", root), name(algorithm, "x", other)) << "all 32 bytes, even if hashes are shorter";
  }
  const auto too_long =
      make_hash_function({.algorithm = HashAlgorithm::sha256, .seed = "", .root = std::vector<std::uint8_t>(33), .extra_keys = nullptr});
  ASSERT_FALSE(too_long);
  EXPECT_EQ(too_long.error().field, "root_hash");
}

TEST(HashFunction, ValidatesNamesOfAlgorithms) {
  for (HashAlgorithm algorithm : kAlgorithms) EXPECT_EQ(parse_hash_algorithm(to_string(algorithm)).value(), algorithm);
  EXPECT_EQ(parse_hash_algorithm("md5").error().field, "prefix_caching_hash_algo");
}

TEST(HashFunction, RefusesXxhashWhenTheBuildHasNone) {
  const auto function = make_hash_function({.algorithm = HashAlgorithm::xxhash, .seed = "0", .root = {}, .extra_keys = nullptr});
  EXPECT_EQ(function.has_value(), xxhash_available());
  if (!function) {
    EXPECT_EQ(function.error().code, ErrorCode::unsupported);
    EXPECT_FALSE(function.error().remedy.empty());
  }
}

TEST(Trap37, LargerBlocksUseTheHashesThatTheySpan) {
  const auto tokens = count(36);
  const auto hashes = block_hashes_of(content_of(tokens));
  const BlockHashList list(hashes, 4, 12);
  ASSERT_EQ(list.size(), 3U);
  for (std::size_t i = 0; i < list.size(); ++i) {
    ASSERT_EQ(list[i].size(), 3U);
    for (std::size_t j = 0; j < 3; ++j) EXPECT_EQ(list[i][j], hashes[3 * i + j]);
  }
  EXPECT_EQ(BlockHashList(std::span(hashes).first(5), 4, 12).size(), 1U) << "only full blocks have a hash";
}

}  // namespace
}  // namespace quire::test
