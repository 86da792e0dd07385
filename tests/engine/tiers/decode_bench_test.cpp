// Tests DecodeBenchConnector, an example that reports tokens that it does not have. It is loaded from its library.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "core/schedule/core_driver.h"
#include "quire/connector_registry.h"

namespace quire {
namespace {

ConnectorAndTransport decode_bench(const CoreConfig& config, ConnectorParameters parameters) {
  ConnectorRegistry registry;
  registry.add_library(QUIRE_EXAMPLE_CONNECTORS);
  const NamedConnector connector{.name = "DecodeBenchConnector", .parameters = std::move(parameters)};
  return registry.create(connector, {.config = &config, .bytes_per_block = 16}).value();
}

TEST(DecodeBench, FillsAPromptExceptItsLastToken) {
  const CoreConfig config = test::sync_config();
  const ConnectorAndTransport halves = decode_bench(config, {});
  test::CoreDriver d(config, {.connector = halves.connector.get()});
  d.add(1, 15, 4);
  const StepPlan& plan = d.plan();
  ASSERT_EQ(plan.scheduled.size(), 1U);
  EXPECT_EQ(plan.scheduled[0].num_computed_tokens, 14U);
  EXPECT_EQ(plan.scheduled[0].num_tokens, 1U);
  ASSERT_EQ(plan.transfers.size(), 1U);
  EXPECT_EQ(plan.transfers[0].need, TransferNeed::step);
  EXPECT_EQ(plan.transfers[0].blocks.size(), 4U);
}

TEST(DecodeBench, FillsBlocksWithNumbersAroundTheMean) {
  for (const KvDtype dtype : {KvDtype::bf16, KvDtype::f32}) {
    KvLayout layout;
    layout.num_blocks = 3;
    layout.dtype = dtype;
    layout.groups = {{.spec = FullAttentionSpec{}, .block_size = 4, .kernel_block_size = 4, .layers = {0, 1}}};
    layout.page_bytes = {64, 32};
    std::vector<std::byte> first(3 * 64), second(3 * 32);
    const ConnectorAndTransport halves = decode_bench(test::sync_config(), {{"fill_mean", "0.5"}, {"fill_std", "0.0"}});
    int num_notified = 0;
    halves.transport->attach({.layout = &layout, .tensors = {first.data(), second.data()}}, [&] { ++num_notified; });
    const BlockId blocks[] = {BlockId{1}};
    const std::uint64_t places[] = {0};
    Transfer transfer;
    transfer.id = TransferId{7};
    transfer.blocks = blocks;
    transfer.places = places;
    halves.transport->start(transfer);
    std::vector<TransferCompletion> over;
    halves.transport->poll(over);
    ASSERT_EQ(over.size(), 1U);
    EXPECT_EQ(over[0].outcome, TransferOutcome::done);
    EXPECT_EQ(num_notified, 1);
    const auto bits = std::bit_cast<std::uint32_t>(0.5F);
    for (const auto& [tensor, page] : {std::pair{&first, 64}, std::pair{&second, 32}}) {
      for (int at = 0; at < page; at += static_cast<int>(layout.element_bytes())) {
        std::uint32_t value = 0;
        const std::size_t offset = sizeof value - layout.element_bytes();
        std::memcpy(reinterpret_cast<std::byte*>(&value) + offset, tensor->data() + page + at, layout.element_bytes());
        ASSERT_EQ(value, bits);
      }
      EXPECT_EQ(tensor->front(), std::byte{0}) << "other blocks are unchanged";
    }
    halves.transport->detach();
  }
}

}  // namespace
}  // namespace quire
