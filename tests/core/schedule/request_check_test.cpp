// What the scheduler refuses at its border.
#include "core/schedule/request_check.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/schedule/harness.h"

namespace quire {
namespace {

using test::small_config;

TEST(RequestCheck, RefusesWhatCanNeverRunAndNamesTheField) {
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
  EXPECT_EQ(field_of(80, 1, 0), "prompt") << "as long as the model's context";
  EXPECT_EQ(field_of(40, 1, 0), "prompt") << "longer than the cache of 32 tokens";
  EXPECT_EQ(field_of(10, 24, 0), "max_tokens");
  EXPECT_EQ(field_of(10, 0, 0), "max_tokens");
  EXPECT_EQ(field_of(10, 4, 5), "min_tokens");
  EXPECT_EQ(field_of(10, 4, 0, {{"a", PlaceholderRange(8, 3U)}}), "multimodal");
  EXPECT_EQ(field_of(10, 4, 0, {{"a", PlaceholderRange(5, 2U)}, {"b", PlaceholderRange(1, 2U)}}), "multimodal");
  EXPECT_EQ(core->counters().num_waiting, 0U);
  EXPECT_EQ(field_of(10, 23, 0), "none") << "33 tokens, of which the last needs no place";
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

}  // namespace
}  // namespace quire
