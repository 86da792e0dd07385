#pragma once
// The tier of an engine in host memory, the first tier below a KV cache on a device. If the KV cache itself is in host memory, the tier
// only keeps blocks longer after requests have released them; a larger KV cache has the same effect without copies.
#include <cstdint>
#include <memory>
#include <vector>

#include "core/connect/offload_connector.h"
#include "core/connect/tier_slots.h"
#include "engine/stats/rate.h"
#include "engine/tiers/dram_peer_index.h"
#include "engine/tiers/kv_tier.h"
#include "quire/base/kv_layout.h"
#include "quire/engine_builder.h"
#include "runtime/tier/memory_transport.h"

namespace quire {

class DramTier final : public KvTier, private TierSlots {
 public:
  // Creates the tier. Errors name `kv_dram`: see EngineBuilder::kv_dram().
  static Result<std::shared_ptr<DramTier>> create(const KvDramOptions& options, const CoreConfig& config, const KvLayout& layout);

  Connector& connector() override { return *connector_; }
  Transport& transport() override { return *transport_; }
  bool maintain(double compute_tokens_per_s) override;
  void take_events(const TierBlockFormat& format, std::vector<KvEvent>& out) override;
  [[nodiscard]] KvTierPolicy policy() const override { return options_.policy; }
  [[nodiscard]] KvTierStats stats() const override;

  // Return the connector and the transport for TierSpill, which moves blocks to disk (tier_spill.h).
  [[nodiscard]] OffloadConnector& offload() { return *connector_; }
  [[nodiscard]] MemoryTransport& memory() { return *transport_; }
  // Returns a source of the tier's blocks for other servers. Called before the engine runs. The returned pointer keeps the tier alive.
  static std::shared_ptr<PeerBlockSource> share(const std::shared_ptr<DramTier>& tier);
  // Makes the tier count evicted blocks that `lower` does not have as dropped. `lower` must outlive this object.
  void set_lower_ledger(const OffloadLedger& lower) { lower_ = &lower; }

 private:
  DramTier(std::unique_ptr<MemoryTransport> transport, const KvDramOptions& options, std::vector<std::uint64_t> group_bytes);
  std::uint64_t assign(std::uint64_t place, const OffloadKey& key) override;
  void left(const OffloadKey& key) override;
  void dropped(const OffloadKey& key) override;

  const std::unique_ptr<MemoryTransport> transport_;
  std::unique_ptr<OffloadConnector> connector_;
  std::unique_ptr<DramPeerIndex> peer_index_;  // null: blocks are not sent to other servers
  const std::vector<std::uint64_t> group_bytes_;
  const KvDramOptions options_;
  const OffloadLedger* lower_ = nullptr;  // null: blocks do not move down
  std::uint64_t num_dropped_ = 0;
  Rate load_rate_;
  // The costs that the connector uses now.
  TierCosts costs_;
  // The transport's totals that `load_rate_` already includes.
  std::uint64_t bytes_loaded_ = 0;
  double seconds_loaded_ = 0.0;
};

}  // namespace quire
