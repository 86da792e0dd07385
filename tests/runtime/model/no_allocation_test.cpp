// A forward pass does not allocate, whatever its mix of prefill and decode.
#include <gtest/gtest.h>

#include "runtime/model/logit_record.h"
#include "runtime/model/rig.h"
#include "runtime/model/tiny_adapter.h"
#include "runtime/model/tiny_model.h"
#include "runtime/model/weights/adapter.h"
#include "support/count_allocations.h"

namespace quire {
namespace {

void expect_no_allocation_at(const std::string& path) {
  if (!QUIRE_COUNTS_ALLOCATIONS) GTEST_SKIP() << "ThreadSanitizer keeps its own operator new: nothing to count";
  const auto info = inspect(path);
  ASSERT_TRUE(info);
  const bool has_bf16 = std::ranges::find(info->held, "bf16", &WeightFormatSummary::form) != info->held.end();
  for (const ActivationMode mode : {ActivationMode::int16, ActivationMode::int8, ActivationMode::f32, ActivationMode::bf16}) {
    if (mode == ActivationMode::bf16 && !has_bf16) continue;
    tiny::Rig rig(path, {.activations = mode, .kv = KvDtype::bf16});
    for (std::uint32_t slot = 0; slot < 4; ++slot) rig.give_blocks(Slot{slot}, tiny::blocks_for(64, 16, 1 + slot, 4));
    const std::vector<TokenId> tokens(50, 7);
    std::vector<float> logits(4 * rig.vocab());
    const std::vector<BatchSequence> prefill{{Slot{0}, 0, 25}, {Slot{1}, 0, 20}, {Slot{2}, 0, 5}};
    const std::vector<BatchSequence> mixed{{Slot{0}, 25, 1}, {Slot{1}, 20, 1}, {Slot{2}, 5, 40}, {Slot{3}, 0, 8}};
    const std::vector<std::uint32_t> none, last{0, 1, 41, 49};
    for (std::uint32_t slot = 4; slot < 8; ++slot) {
      std::vector<BlockId> blocks = tiny::blocks_for(64, 16, 1, 4);  // blocks of slot 0
      blocks.push_back(BlockId{40 + slot});
      rig.give_blocks(Slot{slot}, blocks);
    }
    const std::vector<BatchSequence> sharing{{Slot{4}, 64, 1}, {Slot{5}, 64, 1}, {Slot{6}, 64, 1}, {Slot{7}, 64, 1}};
    const std::vector<std::uint32_t> each{0, 1, 2, 3};
    const std::uint64_t before = test::num_allocations.load();
    rig.model().forward({tokens, prefill, none}, rig.cache(), rig.tables(), {});
    rig.model().forward({tokens, mixed, last}, rig.cache(), rig.tables(), {logits});
    rig.model().forward({std::span(tokens).first(4), sharing, each}, rig.cache(), rig.tables(), {logits});
    EXPECT_EQ(test::num_allocations.load() - before, 0U);
  }
}

void expect_no_allocation(const ModelConfig& config, std::string_view type) {
  const tiny::TempFolder folder;
  tiny::write_gguf(folder.file("model.gguf"), config, type);
  expect_no_allocation_at(folder.file("model.gguf"));
}

TEST(NoAllocation, APassOfManyRequestsAllocatesNothing) {
  expect_no_allocation(tiny::small_llama(), "mixed");
  expect_no_allocation(tiny::small_llama(), "BF16");
}

TEST(NoAllocation, APassThroughExpertsAllocatesNothing) {
  expect_no_allocation(tiny::small_mixture("qwen2_moe"), "Q8_0");
}

TEST(NoAllocation, APassOverLatentsAllocatesNothing) {
  expect_no_allocation(tiny::small_deepseek("deepseek_v3"), "Q8_0");
}

TEST(NoAllocation, APassWithSinksAllocatesNothing) {
  expect_no_allocation(tiny::small_gpt_oss(), "MXFP4");
}

TEST(NoAllocation, APassThroughReorderedColumnsAllocatesNothing) {
  const tiny::TempFolder folder;
  const auto record = tiny::read_logit_record("quantised_");
  expect_no_allocation_at(tiny::write_model(*std::ranges::find(record.cases, "gptq4_orders", &tiny::LogitCase::name), folder));
}

TEST(NoAllocation, APassThroughStatesAllocatesNothing) {
  expect_no_allocation(tiny::small_lfm2(), "Q8_0");
  expect_no_allocation(tiny::small_mamba("granitemoehybrid"), "Q8_0");
  expect_no_allocation(tiny::small_mamba("falcon_h1"), "F32");
}

TEST(NoAllocation, APassWithAdaptersAllocatesNothing) {
  if (!QUIRE_COUNTS_ALLOCATIONS) GTEST_SKIP() << "ThreadSanitizer keeps its own operator new: nothing to count";
  const tiny::TempFolder folder;
  const ModelConfig config = tiny::small_llama();
  tiny::write_gguf(folder.file("model.gguf"), config, "mixed");
  std::vector<std::shared_ptr<const Adapter>> adapters;
  for (const char* name : {"first", "second"}) {
    tiny::AdapterTensors tensors = tiny::adapter_of(config, 8, name);
    tensors.add_embedding(config.vocab_size, config.hidden_size, 8);
    tensors.add("lm_head", config.vocab_size, config.hidden_size, 8);
    tiny::write_adapter(folder.file(name), tiny::adapter_config(8, 16), tensors.all);
    const auto adapter = load_adapter(folder.file(name), config, 8);
    ASSERT_TRUE(adapter) << adapter.error().to_string();
    adapters.push_back(*adapter);
  }
  tiny::Rig rig(folder.file("model.gguf"), {.activations = ActivationMode::int16, .kv = KvDtype::bf16, .max_lora_rank = 8});
  for (std::uint32_t slot = 0; slot < 4; ++slot) rig.give_blocks(Slot{slot}, tiny::blocks_for(64, 16, 1 + slot, 4));
  const std::vector<TokenId> tokens(50, 7);
  std::vector<float> logits(4 * rig.vocab());
  const std::vector<BatchSequence> mixed{
      {Slot{0}, 0, 1, adapters[0].get()}, {Slot{1}, 0, 1}, {Slot{2}, 0, 40, adapters[1].get()}, {Slot{3}, 0, 8, adapters[0].get()}};
  const std::vector<std::uint32_t> last{0, 1, 41, 49};
  const std::uint64_t before = test::num_allocations.load();
  rig.model().forward({tokens, mixed, last}, rig.cache(), rig.tables(), {logits});
  EXPECT_EQ(test::num_allocations.load() - before, 0U);
}

}  // namespace
}  // namespace quire
