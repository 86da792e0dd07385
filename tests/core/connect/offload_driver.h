#pragma once
// Drives a core with an offloading connector step by step. Transfers of a plan stay open until the test ends them.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "core/connect/offload_connector.h"
#include "core/schedule/core_driver.h"

namespace quire::test {

inline CoreConfig recompute_config(std::uint32_t num_blocks = 32) {
  CoreConfig config = sync_config(num_blocks);
  config.kv_load_failure = KvLoadFailurePolicy::recompute;
  return config;
}

struct Begun {
  TransferId id;
  RequestId request;
  TransferDirection direction;
  std::vector<std::uint32_t> blocks;
  std::vector<std::uint64_t> places;
  std::uint32_t group = 0;
};

// A block counts as one byte, so the tier has as many slots as bytes.
class OffloadDriver {
 public:
  explicit OffloadDriver(const OffloadConnectorOptions& options = {.cpu_bytes_to_use = 32}, const CoreConfig& config = sync_config(),
                         TierSlots* places = nullptr)
      : connector(OffloadConnector::create(options, config, 1, places).value()), d(config, {.connector = connector.get()}) {}

  // Adds a request with the first tokens of a prompt.
  void add(std::uint64_t id, std::uint64_t prompt, std::uint32_t num_prompt_tokens, std::uint32_t max_tokens) {
    const Tokens tokens = CoreDriver::prompt(prompt, num_prompt_tokens);
    d.add(CoreDriver::request(id, tokens, max_tokens));
  }

  const StepPlan& plan() {
    const StepPlan& plan = d.plan();
    begun.clear();
    for (const Transfer& transfer : plan.transfers) {
      Begun& one = begun.emplace_back(Begun{transfer.id, transfer.request, transfer.direction, {}, {}, transfer.group});
      std::ranges::transform(transfer.blocks, std::back_inserter(one.blocks), &BlockId::value);
      one.places.assign(transfer.places.begin(), transfer.places.end());
      open.push_back(transfer.id);
    }
    return plan;
  }
  // Ends all open transfers.
  Outcome apply(TransferOutcome outcome = TransferOutcome::done, std::span<const BlockId> bad_blocks = {}) {
    std::vector<TransferCompletion> completions;
    for (const TransferId id : std::exchange(open, {}))
      completions.push_back({.transfer = id, .outcome = outcome, .bad_blocks = bad_blocks});
    return d.apply({}, {.completions = completions});
  }
  // Ends no open transfer.
  Outcome apply_without_ends() { return d.apply(); }
  // Runs until all requests and transfers have ended.
  void run(TransferOutcome outcome = TransferOutcome::done) {
    for (int i = 0; i < 200 && !is_over(); ++i) {
      plan();
      apply(outcome);
      connector->check_invariants();
    }
    EXPECT_TRUE(is_over());
    EXPECT_TRUE(d.core->all_blocks_free());
    EXPECT_EQ(connector->num_tracked(), 0U);
    connector->check_invariants();
  }
  // Empties the prefix cache so that the tier is asked.
  void forget_cached() { EXPECT_TRUE(d.core->reset_prefix_cache().value()); }

  [[nodiscard]] bool is_over() const {
    return !d.core->has_work() && !d.core->has_finished_requests() && d.core->counters().num_awaiting_transfers == 0 && open.empty();
  }
  [[nodiscard]] std::uint32_t num_kept() const { return connector->ledger().num_slots() - connector->ledger().num_free(); }
  // Returns the key of offloaded block `index` of a known request.
  [[nodiscard]] OffloadKey key(std::uint64_t id, std::size_t index, std::uint32_t group = 0) const {
    const std::span<const std::uint8_t> names = d.view(id).block_hashes;
    OffloadKey key{.hash = {}, .group = group};
    std::ranges::copy(names.subspan(((index + 1) * connector->blocks_per_key() - 1) * 32, 32), key.hash.begin());
    return key;
  }

  std::unique_ptr<OffloadConnector> connector;
  CoreDriver d;
  std::vector<Begun> begun;      // transfers of the last plan
  std::vector<TransferId> open;  // transfers that have not ended
};

}  // namespace quire::test
