#pragma once
// A connector that was requested by name (--kv-connector), wrapped so that the engine counts its transfers like the transfers of quire's
// tiers. If it is quire's offloading connector and the policy is KvTierPolicy::measured, it also receives the costs of loading, like
// quire's tiers.
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "core/connect/offload_connector.h"
#include "engine/stats/rate.h"
#include "engine/tiers/kv_tier.h"
#include "quire/connector_registry.h"

namespace quire {

class NamedTier final : public KvTier, private Connector {
 public:
  // Wraps a connector and its transport. All calls pass to the connector unchanged. `block_bytes`: size of a KV block of the largest cache
  // group. A slot of the offloading connector holds blocks_per_key() KV blocks.
  NamedTier(std::string name, ConnectorAndTransport halves, KvTierPolicy policy, std::uint64_t block_bytes);

  Connector& connector() override { return *this; }
  Transport& transport() override { return *halves_.transport; }
  bool maintain(double compute_tokens_per_s) override;
  // Takes the events of quire's offloading connector. Their medium is CPU, as in the events of vLLM's connector.
  void take_events(const TierBlockFormat& format, std::vector<KvEvent>& out) override;
  [[nodiscard]] KvTierPolicy policy() const override { return policy_; }
  [[nodiscard]] bool is_builtin() const override { return false; }
  [[nodiscard]] KvTierStats stats() const override;

 private:
  struct OpenTransfer {
    TransferDirection direction;
    std::uint64_t num_blocks;
  };
  struct TransferTotal {
    std::uint64_t num_blocks = 0, bytes = 0;
    double seconds = 0.0;
  };
  class CountedTransfers;

  void bind(const Core& core) override { halves_.connector->bind(core); }
  [[nodiscard]] bool supports_groups() const override { return halves_.connector->supports_groups(); }
  [[nodiscard]] bool supports_states() const override { return halves_.connector->supports_states(); }
  ExternalMatch match(const RequestView& request, std::uint32_t num_local_tokens) override {
    return halves_.connector->match(request, num_local_tokens);
  }
  bool peek(const RequestView& request, std::uint32_t num_local_tokens, std::vector<TierMatch>& matches) override {
    return halves_.connector->peek(request, num_local_tokens, matches);
  }
  void allocated(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens) override;
  bool finished(const RequestView& request, GroupBlocks blocks) override { return halves_.connector->finished(request, blocks); }
  void planned(const StepPlan& plan) override { halves_.connector->planned(plan); }
  void plan_transfers(const StepPlan& plan, TransferList& transfers) override;
  void completed(const TransferCompletion& completion) override;
  void order_failed(std::size_t num_async, std::span<RequestId> finishing, std::span<RequestId> reported) override {
    halves_.connector->order_failed(num_async, finishing, reported);
  }
  void forget_blocks(const RequestView& request) override { halves_.connector->forget_blocks(request); }
  void invalidated(const RequestView& request, std::uint32_t num_valid_tokens) override {
    halves_.connector->invalidated(request, num_valid_tokens);
  }
  void sent(RequestId request) override { halves_.connector->sent(request); }
  void step_output() override { halves_.connector->step_output(); }
  bool reset() override { return halves_.connector->reset(); }

  const std::string name_;
  const ConnectorAndTransport halves_;
  OffloadConnector* const offload_;  // null for any other connector
  const KvTierPolicy policy_;
  const std::uint64_t block_bytes_;
  std::unordered_map<std::uint64_t, OpenTransfer> open_transfers_;  // by transfer
  std::array<TransferTotal, 2> totals_{};                           // by direction
  TransferTotal measured_;                                          // totals of loads at the last maintain()
  std::uint64_t num_failed_blocks_ = 0, num_external_tokens_ = 0;
  Rate load_rate_;
  TierCosts costs_;
};

}  // namespace quire
