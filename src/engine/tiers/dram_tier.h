#pragma once
// The tier of an engine in host memory. Where the KV cache is host memory itself it keeps blocks that requests have left longer, and no
// more: more memory for the cache does the same without copies. It is what a cache on a device has first below it.
#include <cstdint>
#include <memory>
#include <vector>

#include "core/connect/offload_connector.h"
#include "core/connect/tier_places.h"
#include "engine/stats/rate.h"
#include "engine/tiers/dram_shelf.h"
#include "engine/tiers/kv_tier.h"
#include "quire/base/kv_layout.h"
#include "quire/engine_builder.h"
#include "runtime/tier/memory_transport.h"

namespace quire {

class DramTier final : public KvTier, private TierPlaces {
 public:
  // Errors name kv_dram: see EngineBuilder::kv_dram().
  static Result<std::shared_ptr<DramTier>> create(const KvDramOptions& options, const CoreConfig& config, const KvLayout& layout);

  Connector& connector() override { return *connector_; }
  Transport& transport() override { return *transport_; }
  bool tend(double compute_tokens_per_s) override;
  void take_events(const TierNames& names, std::vector<KvEvent>& out) override;
  [[nodiscard]] KvTierPolicy policy() const override { return options_.policy; }
  [[nodiscard]] KvTierStats stats() const override;

  // For what moves its blocks down (tier_spill.h).
  [[nodiscard]] OffloadConnector& offload() { return *connector_; }
  [[nodiscard]] MemoryTransport& memory() { return *transport_; }
  // Before the engine runs: its blocks, for other servers. It keeps the tier.
  static std::shared_ptr<PeerShelf> share(const std::shared_ptr<DramTier>& tier);
  // From now on blocks that leave and that `lower`, which outlives it, does not hold are counted as dropped.
  void count_dropped_beside(const OffloadLedger& lower) { lower_ = &lower; }

 private:
  DramTier(std::unique_ptr<MemoryTransport> transport, const KvDramOptions& options, std::vector<std::uint64_t> group_bytes);
  std::uint64_t assign(std::uint64_t place, const OffloadKey& key) override;
  void left(const OffloadKey& key) override;
  void dropped(const OffloadKey& key) override;

  const std::unique_ptr<MemoryTransport> transport_;
  std::unique_ptr<OffloadConnector> connector_;
  std::unique_ptr<DramShelf> shelf_;  // null: nobody else is given anything
  const std::vector<std::uint64_t> group_bytes_;
  const KvDramOptions options_;
  const OffloadLedger* lower_ = nullptr;  // null: nothing moves down
  std::uint64_t num_dropped_ = 0;
  Rate load_rate_;
  // As the connector has them.
  TierCosts costs_;
  // Up to where load_rate_ has counted.
  std::uint64_t bytes_loaded_ = 0;
  double seconds_loaded_ = 0.0;
};

}  // namespace quire
