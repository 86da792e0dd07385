#include "engine/memory_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace quire {
namespace {

constexpr std::uint64_t kOneGiB = std::uint64_t{1} << 30U;

TEST(MemoryBudget, AcceptsAnExactFit) {
  const std::vector<MemoryShare> shares = {{nullptr, "weights", 3 * kOneGiB}, {"kv_cache_bytes", "KV cache", 5 * kOneGiB}};
  EXPECT_TRUE(check_memory(shares, 8 * kOneGiB).has_value());
  EXPECT_FALSE(check_memory(shares, 8 * kOneGiB - 1).has_value());
  EXPECT_TRUE(check_memory(shares, 0).has_value()) << "unknown machine memory refuses nothing";
}

TEST(MemoryBudget, ReportsTheLargestOptionItsValueAndTheAvailableMemory) {
  const std::vector<MemoryShare> shares = {
      {"kv_dram", "tier in host memory", 9 * kOneGiB}, {nullptr, "weights", kOneGiB}, {"kv_cache_bytes", "KV cache", 2 * kOneGiB}};
  const Result<void> refused = check_memory(shares, 11 * kOneGiB);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().field, "kv_dram");
  for (const char* figure : {"9.00 GiB", "11.00 GiB", "weights 1.00 GiB", "KV cache 2.00 GiB"})
    EXPECT_NE(refused.error().message.find(figure), std::string::npos) << figure << " in " << refused.error().message;
  EXPECT_NE(refused.error().remedy.find("8.00 GiB"), std::string::npos) << refused.error().remedy;
}

TEST(MemoryBudget, ReportsTheModelWhenTheWeightsAloneAreTooLarge) {
  const Result<void> refused = check_memory({{nullptr, "weights", 7 * kOneGiB}}, 6 * kOneGiB);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().field, "model");
}

TEST(MemoryBudget, RefusesSumsThatOverflow) {
  const std::vector<MemoryShare> shares = {{"kv_swap", "swap", UINT64_MAX - 5}, {"kv_dram", "tier in host memory", UINT64_MAX - 9}};
  EXPECT_EQ(sum_of(shares), UINT64_MAX);
  const Result<void> refused = check_memory(shares, UINT64_MAX - 1);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().field, "kv_swap");
}

TEST(MemoryBudget, CountsTiersAndConnectorsInHostMemory) {
  EngineSeams seams;
  seams.kv_dram.bytes = 3 * kOneGiB;
  seams.choice.connectors = {{.name = "OffloadingConnector", .parameters = {{"cpu_bytes_to_use", std::to_string(kOneGiB)}}},
                             {.name = "MultiConnector", .parameters = {{"connectors", "A:cpu_bytes_to_use=7|B:path=x"}}},
                             {.name = "Other", .parameters = {{"cpu_bytes_to_use", "many"}}}};
  EXPECT_EQ(sum_of(tier_shares(seams)), 4 * kOneGiB + 7);
}

TEST(MemoryBudget, SaysWhichValueFits) {
  struct Case {
    std::vector<MemoryShare> shares;
    std::uint64_t total;
    const char* text;
  };
  const MemoryShare weights{nullptr, "weights", 3 * kOneGiB}, cache{"num_blocks", "KV cache", 2 * kOneGiB};
  const MemoryShare swap{"kv_swap", "swap", 2 * kOneGiB}, none{"kv_dram", "tier in host memory", 0};
  const Case cases[] = {
      {{none, cache},
       kOneGiB,
       "num_blocks: 2.00 GiB does not fit: this machine or its control group has 1.00 GiB of memory; use at most 1.00 GiB, or give the "
       "process more memory"},
      {{weights, none, cache},
       4 * kOneGiB,
       "num_blocks: 2.00 GiB does not fit: this machine or its control group has 4.00 GiB of memory, and the server also needs weights "
       "3.00 GiB; use at most 1.00 GiB, or give the process more memory"},
      {{weights, cache, swap},
       5 * kOneGiB + 1,
       "num_blocks: 2.00 GiB does not fit: this machine or its control group has 5.00 GiB of memory, and the server also needs weights "
       "3.00 GiB, swap 2.00 GiB; use at most 1 B, or give the process more memory"},
      {{weights, cache, swap},
       5 * kOneGiB,
       "num_blocks: this machine or its control group has 5.00 GiB of memory, but the server needs 7.00 GiB (KV cache 2.00 GiB, "
       "weights 3.00 GiB, swap 2.00 GiB); serve a smaller model, or give the process more memory"},
      {{weights, none},
       kOneGiB,
       "model: this machine or its control group has 1.00 GiB of memory, but the server needs 3.00 GiB (weights 3.00 GiB); serve a smaller "
       "model, or give the process more memory"},
  };
  for (const Case& c : cases) {
    const Result<void> refused = check_memory(c.shares, c.total);
    ASSERT_FALSE(refused.has_value()) << c.text;
    EXPECT_EQ(refused.error().to_string(), c.text);
    EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  }
}

TEST(MemoryBudget, CountsAConnectorOnlyIfItsSizeIsANumber) {
  const auto bytes_of = [](const std::string& text) {
    EngineSeams seams;
    seams.choice.connectors = {{.name = "OffloadingConnector", .parameters = {{"cpu_bytes_to_use", text}}}};
    const std::vector<MemoryShare> shares = tier_shares(seams);
    EXPECT_EQ(shares.size(), 2U);
    EXPECT_STREQ(shares.at(0).option, "kv_dram");
    EXPECT_STREQ(shares.at(1).option, "kv_connector");
    EXPECT_STREQ(shares.at(1).name, "connector");
    return shares.at(1).bytes;
  };
  EXPECT_EQ(bytes_of("4096"), 4096U);
  EXPECT_EQ(bytes_of("18446744073709551615"), UINT64_MAX);
  for (const char* text : {"", "4096x", "x4096", "-1", "18446744073709551616"}) EXPECT_EQ(bytes_of(text), 0U) << text;
  EngineSeams invalid;
  invalid.choice.connectors = {{.name = "MultiConnector", .parameters = {{"connectors", ""}}}};
  EXPECT_EQ(tier_shares(invalid).size(), 1U) << "the connector itself reports the error";
}

TEST(MemoryBudget, ListsTheMemoryOfEachOption) {
  ModelInfo model;
  model.weight_bytes = 100;
  model.expert_bytes = 60;
  KvLayout layout;
  layout.page_bytes = {8};
  layout.groups.push_back({.spec = {}, .block_size = 1, .kernel_block_size = 1, .layers = {0}});
  layout.num_blocks = 5;
  EngineOptions options;
  options.journal.memory_bytes = 21;
  options.kv_swap.bytes = 16;
  const auto share = [&](const EngineOptions& given, const char* name) {
    for (const MemoryShare& one :
         memory_shares(given, {.options = options, .model = model, .layout = layout, .core = {}, .limits = {}}, 9, {}))
      if (one.name == std::string(name)) return one;
    return MemoryShare{};
  };
  EXPECT_EQ(share(options, "weights").bytes, 100U);
  EXPECT_EQ(share(options, "KV cache").bytes, 40U);
  EXPECT_STREQ(share(options, "KV cache").option, "kv_cache_bytes");
  EXPECT_EQ(share(options, "draft model").bytes, 9U);
  EXPECT_EQ(share(options, "swap").bytes, 16U);
  EXPECT_EQ(share(options, "journal").bytes, 21U);
  for (const auto& [name, option] : {std::pair("swap", "kv_swap"), {"journal", "journal_memory"}})
    EXPECT_STREQ(share(options, name).option, option);
  for (const char* name : {"weights", "draft model"}) EXPECT_EQ(share(options, name).option, nullptr) << "no option sets the size";
  EXPECT_STREQ(share(options, "experts").name, "") << "all experts are part of the weights";
  EngineOptions in_blocks = options;
  in_blocks.cache.num_blocks = 5;
  EXPECT_STREQ(share(in_blocks, "KV cache").option, "num_blocks");
  options.weights.cache_folder = "packed";
  options.weights.expert_bytes = 1000;
  EXPECT_EQ(share(options, "weights").bytes, 0U) << "mapped weights are pages of a file";
  EXPECT_EQ(share(options, "experts").bytes, 60U);
  EXPECT_STREQ(share(options, "experts").option, "expert_memory");
  options.weights.expert_bytes = 1;
  EXPECT_EQ(share(options, "experts").bytes, 1U);
}

}  // namespace
}  // namespace quire
