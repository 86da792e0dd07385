// Hashes of a prompt's blocks that the client's thread computes must equal the hashes that the core computes.
#include "engine/requests/block_keys.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/simulated_engine.h"

namespace quire {
namespace {

CoreConfig hashing_config(HashAlgorithm algorithm = HashAlgorithm::canonical) {
  EngineOptions options;
  options.cache.num_blocks = 50;
  options.cache.block_size = 4;
  CoreConfig config = resolve_options(options, simulated_model(), {1, 0}).value().core;
  config.prefix_cache.hash = algorithm;
  config.prefix_cache.hash_seed = "seed";
  return config;
}

// Returns the hashes that a core computes for the request's prompt.
std::vector<std::uint8_t> hashes_of_core(const EngineRequest& given, const AdapterLease* adapter, const CoreConfig& config) {
  const auto core = Core::create(config).value();
  std::vector<MultimodalFeature> features;
  for (const PromptImage& image : given.pictures) features.push_back({image.identifier, image.position});
  NewRequest request;
  request.id = {1};
  request.prompt = given.prompt;
  request.max_tokens = 1;
  request.cache_salt = given.cache_salt;
  request.multimodal = features;
  set_lora_fields(adapter, request);
  const auto added = core->add(request);
  EXPECT_TRUE(added.has_value()) << added.error().to_string();
  const auto hashes = core->view({1}).value().block_hashes;
  return {hashes.begin(), hashes.end()};
}

std::vector<std::uint8_t> bytes_of(const std::vector<BlockHash>& hashes) {
  std::vector<std::uint8_t> bytes;
  for (const BlockHash& hash : hashes) bytes.insert(bytes.end(), hash.bytes.begin(), hash.bytes.end());
  return bytes;
}

TEST(BlockKeys, EqualTheHashesOfTheCore) {
  const AdapterLease lease{"name",
                           std::make_shared<const ResidentAdapter>(ResidentAdapter{.id = 4, .content_id = "content", .weights = nullptr})};
  const AdapterLease renamed{"other name", lease.resident};
  const EngineRequest plain = make_request(11, 1);
  EngineRequest salted = plain, with_image = plain, moved_image = plain, other_image = plain;
  salted.cache_salt = "salt";
  with_image.pictures = {{"image", PlaceholderRange(1, 2), nullptr}};
  moved_image.pictures = {{"image", PlaceholderRange(2, 2), nullptr}};
  other_image.pictures = {{"other", PlaceholderRange(1, 2), nullptr}};
  std::set<std::vector<std::uint8_t>> distinct;
  for (const auto& [request, adapter] : {std::pair<const EngineRequest*, const AdapterLease*>{&plain, nullptr},
                                         {&salted, nullptr},
                                         {&with_image, nullptr},
                                         {&moved_image, nullptr},
                                         {&other_image, nullptr},
                                         {&plain, &lease}}) {
    const std::vector<BlockHash> hashes = name_blocks(*request, adapter, hashing_config());
    EXPECT_EQ(hashes.size(), 2U) << "11 tokens fill two blocks";
    EXPECT_EQ(bytes_of(hashes), hashes_of_core(*request, adapter, hashing_config()));
    EXPECT_TRUE(distinct.insert(bytes_of(hashes)).second);
  }
  EXPECT_EQ(name_blocks(plain, &renamed, hashing_config()), name_blocks(plain, &lease, hashing_config()))
      << "the content of an adapter counts, not its name";
}

TEST(BlockKeys, DependOnTheSeedOrTheRootOfTheHashes) {
  const EngineRequest request = make_request(8, 1);
  CoreConfig seeded = hashing_config(), rooted = hashing_config(), vllm = hashing_config(HashAlgorithm::sha256_cbor);
  seeded.prefix_cache.hash_seed = "other";
  rooted.prefix_cache.root_hash = {1, 2, 3};
  std::set<std::vector<std::uint8_t>> distinct;
  for (const CoreConfig& config : {hashing_config(), seeded, rooted, vllm}) {
    const std::vector<std::uint8_t> bytes = bytes_of(name_blocks(request, nullptr, config));
    EXPECT_EQ(bytes, hashes_of_core(request, nullptr, config));
    EXPECT_TRUE(distinct.insert(bytes).second);
  }
}

TEST(BlockKeys, AreNotComputedWithoutACacheOrForShortHashes) {
  const EngineRequest request = make_request(8, 1);
  CoreConfig off = hashing_config();
  off.prefix_cache.enable_prefix_caching = false;
  EXPECT_TRUE(name_blocks(request, nullptr, off).empty());
  EXPECT_TRUE(name_blocks(request, nullptr, hashing_config(HashAlgorithm::xxhash)).empty());
  EXPECT_TRUE(name_blocks(make_request(3, 1), nullptr, hashing_config()).empty()) << "no block is full";
}

}  // namespace
}  // namespace quire
