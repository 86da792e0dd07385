// Parts of the core's cache that work in every step must not allocate memory once their storage has grown.
#include <gtest/gtest.h>

#include <numeric>

#include "core/kv/encoder_cache.h"
#include "core/kv/hash/hash_function.h"
#include "core/kv/kv_cache_manager.h"
#include "core/kv/kv_support.h"
#include "core/kv/residency.h"
#include "support/count_allocations.h"

namespace quire::test {
namespace {

template <class Work>
std::uint64_t allocations_of(const Work& work) {
  const std::uint64_t before = num_allocations;
  work();
  return num_allocations - before;
}

TEST(NoAllocation, ForHashingBlocks) {
  std::vector<TokenId> tokens(4096);
  std::iota(tokens.begin(), tokens.end(), 0);
  for (HashAlgorithm algorithm : {HashAlgorithm::canonical, HashAlgorithm::sha256, HashAlgorithm::sha256_cbor, HashAlgorithm::xxhash}) {
    const auto function = make_hash_function({.algorithm = algorithm, .seed = "0", .root = {}, .extra_keys = nullptr});
    if (!function) continue;
    std::vector<BlockHash> hashes;
    hashes.reserve(256);
    RequestContent content{
        .tokens = std::span(tokens).first(64), .lora_name = "l", .multimodal = {}, .cache_salt = "s", .prompt_embeds = {}};
    hash_full_blocks(**function, content, 16, hashes);
    content.tokens = tokens;
    EXPECT_EQ(allocations_of([&] { hash_full_blocks(**function, content, 16, hashes); }), 0U) << to_string(algorithm);
    EXPECT_EQ(hashes.size(), 256U);
  }
}

TEST(NoAllocation, ForLookingUpEncoderInputs) {
  EncoderCache cache(EncoderCacheMode::shared, 1000);
  std::vector<MultimodalFeature> features;
  for (std::uint32_t i = 0; i < 20; ++i)
    features.push_back({"an identifier longer than any short string " + std::to_string(i), PlaceholderRange(8 * i, 4)});
  const EncoderInputs request{RequestId{1}, features};
  std::vector<std::uint32_t> inputs;
  const auto step = [&] {
    for (std::uint32_t i = 0; i < features.size(); i += 2)
      if (!cache.check_and_reference(request, i)) cache.allocate(request, i);
    cache.cached_inputs(request, inputs);
    cache.release_all(request);
    EXPECT_TRUE(cache.take_freed().empty());
  };
  step();
  step();
  EXPECT_EQ(allocations_of(step), 0U);
}

TEST(NoAllocation, ForSamplingBlocks) {
  KvResidency residency(16, 1.0);
  EXPECT_EQ(allocations_of([&] {
              residency.begin(1000, 1);
              for (std::uint32_t i = 0; i < 16; ++i) {
                residency.on_allocated(BlockId{i});
                residency.on_accessed(BlockId{i});
              }
            }),
            0U);
}

TEST(NoAllocation, ForFreeingBlocksLater) {
  KvCacheManager kv(config_of(64, {full(), window(9)}), options_of());
  TestRequest first("ABCDEFGH", 4), second("abcd", 4);
  std::uint64_t now = 0, num_allocations = 0;
  const auto round = [&] {
    ASSERT_EQ(kv.allocate_slots(first.view(), {.num_new_tokens = 8}), 0U);
    ASSERT_EQ(kv.allocate_slots(second.view(), {.num_new_tokens = 4}), 0U);
    num_allocations += allocations_of([&] {
      kv.free_later(first.blocks, now + 1);
      kv.free_later(second.blocks, now + 2);
      for (int i = 0; i < 2; ++i) kv.free_due(++now);
    });
  };
  for (int i = 0; i < 3; ++i) round();
  num_allocations = 0;
  for (int i = 0; i < 200; ++i) round();
  EXPECT_EQ(num_allocations, 0U);
  EXPECT_EQ(kv.pool().num_free_blocks(), 63U);
}

TEST(NoAllocation, ForDecodeSteps) {
  KvCacheOptions options = options_of();
  options.max_model_len = 4096;
  KvCacheManager kv(config_of(6000, {full(), window(9), mamba(MambaCacheMode::align, 2)}), options);
  TestRequest request("ABCDEFGH", 4);
  kv.reserve(request.blocks, 4096);
  ASSERT_EQ(kv.allocate_slots(request.view(), {.num_new_tokens = 8}), 0U);
  request.append(std::string(4000, 'x'));
  const KvRequest all = request.view();
  std::uint64_t missing = 0;
  std::vector<BlockId> zeroed;
  zeroed.reserve(64);
  const auto decode = [&](std::uint32_t computed) {
    kv.new_step_starts(0.0);
    KvRequest view = all;
    view.num_computed_tokens = computed;
    view.num_tokens = computed + 1;
    missing += kv.allocate_slots(view, {.num_new_tokens = 1});
    zeroed.clear();
    kv.take_new_block_ids(zeroed);
  };
  for (std::uint32_t computed = 8; computed < 64; ++computed) decode(computed);
  EXPECT_EQ(allocations_of([&] {
              for (std::uint32_t computed = 64; computed < 4000; ++computed) decode(computed);
            }),
            0U);
  EXPECT_EQ(missing, 0U);
}

}  // namespace
}  // namespace quire::test
