// Tests which requests and configurations the core refuses.
#include "core/schedule/requests/request_check.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "core/kv/hash/hash_function.h"
#include "core/schedule/harness.h"

namespace quire::test {
namespace {

TEST(RequestCheck, RefusesRequestsThatCanNeverRunAndNamesTheField) {
  CoreConfig config = small_config(9);
  config.scheduler.max_num_waiting = 1;
  auto core = Core::create(config).value();
  const auto field_of = [&](std::size_t num_prompt, std::uint32_t max_tokens, std::uint32_t min_tokens,
                            std::vector<MultimodalFeature> items = {}) {
    const std::vector<TokenId> prompt(num_prompt, 7);
    const auto added =
        core->add({.id = RequestId{1}, .prompt = prompt, .max_tokens = max_tokens, .min_tokens = min_tokens, .multimodal = items});
    return added ? std::string("none") : added.error().field;
  };
  EXPECT_EQ(field_of(0, 1, 0), "prompt");
  EXPECT_EQ(field_of(80, 1, 0), "prompt") << "the prompt is as long as the model's context";
  EXPECT_EQ(field_of(40, 1, 0), "prompt") << "the prompt is longer than the cache of 32 tokens";
  EXPECT_EQ(field_of(10, 24, 0), "max_tokens");
  EXPECT_EQ(field_of(10, 0, 0), "max_tokens");
  EXPECT_EQ(field_of(10, 4, 5), "min_tokens");
  EXPECT_EQ(field_of(10, 4, 0, {{"a", PlaceholderRange(8, 3U)}}), "multimodal");
  EXPECT_EQ(field_of(10, 4, 0, {{"a", PlaceholderRange(5, 2U)}, {"b", PlaceholderRange(1, 2U)}}), "multimodal");
  EXPECT_EQ(core->counters().num_waiting, 0U);
  EXPECT_EQ(field_of(10, 23, 0), "none") << "the last of 33 tokens needs no slot";
  EXPECT_EQ(field_of(10, 1, 0), "id");
}

TEST(CoreConfig, RefusesConfigurationsThatCannotWork) {
  const auto field_of = [](auto change) {
    CoreConfig config = small_config();
    change(config);
    const auto created = Core::create(config);
    return created ? std::string("none") : created.error().field;
  };
  EXPECT_EQ(field_of([](CoreConfig& c) { c.kv.num_blocks = 1; }), "num_blocks");
  EXPECT_EQ(field_of([](CoreConfig& c) { c.block_size = 0; }), "block_size");
  EXPECT_EQ(field_of([](CoreConfig& c) { c.scheduler.max_num_seqs = 0; }), "max_num_seqs");
  EXPECT_EQ(field_of([](CoreConfig& c) { c.scheduler.max_model_len = 0; }), "max_model_len");
  EXPECT_EQ(field_of([](CoreConfig& c) { c.scheduler.max_num_batched_tokens = 0; }), "max_num_batched_tokens");
  EXPECT_EQ(field_of([](CoreConfig& c) { c.scheduler.enable_chunked_prefill = false; }), "max_num_batched_tokens");
  EXPECT_EQ(field_of([](CoreConfig&) {}), "none");
}

// Counts how many blocks the core hashes itself.
class CountingHash final : public HashFunction {
 public:
  BlockHash hash(const BlockHash* parent, const HashInput& input) override {
    ++num_calls;
    return plain_->hash(parent, input);
  }
  std::uint32_t num_calls = 0;

 private:
  std::unique_ptr<HashFunction> plain_ = make_hash_function({}).value();
};

TEST(BlockHasher, UsesGivenHashesAndComputesOnlyTheOthers) {
  CountingHash hash;
  auto core = Core::create(small_config(), {.hash = &hash}).value();
  const std::vector<TokenId> prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
  ASSERT_TRUE(core->add({.id = RequestId{1}, .prompt = prompt}));
  const std::uint32_t num_blocks = hash.num_calls;
  ASSERT_GT(num_blocks, 1U);
  const std::span<const std::uint8_t> names = core->view(RequestId{1})->block_hashes;
  const std::vector<std::uint8_t> all(names.begin(), names.end());
  const auto hashes_of = [&](std::uint64_t id, std::span<const std::uint8_t> given) {
    hash.num_calls = 0;
    EXPECT_TRUE(core->add({.id = RequestId{id}, .prompt = prompt, .block_hashes = given}));
    const auto named = core->view(RequestId{id})->block_hashes;
    return std::vector<std::uint8_t>(named.begin(), named.end());
  };
  EXPECT_EQ(hashes_of(2, all), all);
  EXPECT_EQ(hash.num_calls, 0U);
  EXPECT_EQ(hashes_of(3, std::span(all).first(32)), all);
  EXPECT_EQ(hash.num_calls, num_blocks - 1);
  std::vector<std::uint8_t> too_many = all;
  too_many.resize(all.size() + 32);
  EXPECT_EQ(core->add({.id = RequestId{4}, .prompt = prompt, .block_hashes = too_many}).error().field, "block_hashes");
}

TEST(PromptStorage, IsMovedOnlyWhenTheRequestIsAccepted) {
  auto core = Core::create(small_config()).value();
  std::vector<TokenId> prompt = {1, 2, 3, 4, 5};
  const TokenId* const address = prompt.data();
  EXPECT_FALSE(core->add({.id = RequestId{1}, .prompt = prompt, .prompt_storage = &prompt, .max_tokens = 0}));
  EXPECT_EQ(prompt.size(), 5U);
  ASSERT_TRUE(core->add({.id = RequestId{1}, .prompt = prompt, .prompt_storage = &prompt}));
  EXPECT_EQ(core->view(RequestId{1})->tokens.data(), address) << "the storage is not copied";
  EXPECT_EQ(core->view(RequestId{1})->tokens.size(), 5U);
}

}  // namespace
}  // namespace quire::test
