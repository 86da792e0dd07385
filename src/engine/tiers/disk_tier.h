#pragma once
// The disk tier of an engine: the store in a folder, the transport to the store, and the connector that decides what to store and to load.
//
// A separate thread finds the blocks of earlier processes: it reads the store's table while the model is loaded. The connector takes these
// blocks in portions, between steps (maintain()). A block that the connector has not taken yet is a miss, and nothing is written to its
// slot. Afterwards the thread monitors the tier (tier_monitor.h).
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/connect/offload_connector.h"
#include "core/connect/tier_slots.h"
#include "engine/stats/rate.h"
#include "engine/tiers/kv_tier.h"
#include "engine/tiers/tier_spill.h"
#include "quire/base/kv_layout.h"
#include "quire/engine_builder.h"
#include "runtime/tier/disk_store.h"
#include "runtime/tier/store_transport.h"
#include "runtime/tier/tier_monitor.h"

namespace quire {

// Returns the budget if KvDiskOptions::budget_bytes is 0: a quarter of the sum of free space and the folder's present size, but at most 64
// GiB and at most 2^20 slots. (A slot takes about 200 bytes of memory.)
std::uint64_t default_tier_budget(std::uint64_t free_bytes, std::uint64_t own_bytes, std::uint64_t place_bytes);

class DiskTier final : public KvTier, private TierSlots {
 public:
  // Opens the tier in `options.folder`. Errors: the errors of EngineBuilder::kv_disk().
  static Result<std::shared_ptr<DiskTier>> open(const KvDiskOptions& options, const CoreConfig& config, const KvLayout& layout,
                                                const TierFingerprint& fingerprint);
  // Opens the tier on files that are already open. After a failure, the monitor looks for the files in `options.folder`.
  static Result<std::shared_ptr<DiskTier>> open_on(std::unique_ptr<TierFiles> files, const KvDiskOptions& options, const CoreConfig& config,
                                                   const KvLayout& layout, const TierFingerprint& fingerprint);
  ~DiskTier() override;
  DiskTier(const DiskTier&) = delete;
  DiskTier& operator=(const DiskTier&) = delete;

  // Makes this the tier below `upper`. Called before the engine runs. `upper` then moves blocks to this tier before it evicts them.
  // Directly from the KV cache, this tier stores only requests that are too large for `upper`. This object keeps `upper` alive.
  void set_upper_tier(std::shared_ptr<DramTier> upper);

  Connector& connector() override { return *connector_; }
  Transport& transport() override { return transport_; }
  void set_notify(const std::function<void()>& notify) override;
  bool maintain(double compute_tokens_per_s) override;
  void take_events(const TierBlockFormat& format, std::vector<KvEvent>& out) override;
  [[nodiscard]] KvTierPolicy policy() const override { return policy_; }
  [[nodiscard]] KvTierStats stats() const override;

 private:
  DiskTier(std::shared_ptr<DiskStore> store, const KvDiskOptions& options, std::uint64_t budget_bytes,
           std::vector<std::uint64_t> group_bytes);
  std::uint64_t assign(std::uint64_t place, const OffloadKey& key) override;
  void run();
  void find_restored();
  void notify();
  bool take_restored();
  bool take_costs(double compute_tokens_per_s);

  const std::shared_ptr<DiskStore> store_;
  StoreTransport transport_;
  TierMonitor monitor_;
  std::unique_ptr<OffloadConnector> connector_;
  std::unique_ptr<TierSpill> spill_;  // null if there is no DRAM tier above
  const KvTierPolicy policy_;
  const std::uint64_t budget_bytes_;
  const std::vector<std::uint64_t> group_bytes_;  // bytes of a block, by cache group

  // Used on the engine thread only.
  TierService service_;
  TierCosts costs_;
  Rate load_rate_;
  std::uint64_t bytes_read_ = 0, num_declined_tokens_ = 0;
  double loading_s_ = 0.0;

  // Guards `notify_`, and the wait that ends when `stops_` is set.
  std::mutex mutex_;
  std::condition_variable stopping_;
  std::function<void()> notify_;
  // Written by the tier's thread before it sets `is_found_`; afterwards used by the engine thread.
  std::vector<std::uint32_t> empty_;     // slots
  std::vector<RestoredBlock> restored_;  // the most recently stored block is last
  // True when `empty_` and `restored_` are complete; from then on they belong to the engine thread.
  std::atomic<bool> is_found_ = false;
  std::atomic<bool> stops_ = false;
  std::thread thread_;
};

}  // namespace quire
