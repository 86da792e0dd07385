#pragma once
// The disk tier of an engine: the store in a folder, the transport to it, and the connector that decides what goes there and comes back.
//
// What earlier processes have left is found by a thread of its own, which reads the store's table while the model is loaded. The connector
// takes it in portions, between steps (tend()); what it has not taken yet is a miss, and its place is not written to. Thereafter the thread
// watches over the tier (tier_watch.h).
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/connect/offload_connector.h"
#include "core/connect/tier_places.h"
#include "engine/stats/rate.h"
#include "engine/tiers/kv_tier.h"
#include "engine/tiers/tier_spill.h"
#include "quire/base/kv_layout.h"
#include "quire/engine_builder.h"
#include "runtime/tier/disk_store.h"
#include "runtime/tier/store_transport.h"
#include "runtime/tier/tier_watch.h"

namespace quire {

// Where KvDiskOptions::budget_bytes is 0: a quarter of what is free or the folder's own, at most 64 GiB and 2^20 places (which take some
// 200 bytes of memory each).
std::uint64_t default_tier_budget(std::uint64_t free_bytes, std::uint64_t own_bytes, std::uint64_t place_bytes);

class DiskTier final : public KvTier, private TierPlaces {
 public:
  // Errors: see EngineBuilder::kv_disk().
  static Result<std::shared_ptr<DiskTier>> open(const KvDiskOptions& options, const CoreConfig& config, const KvLayout& layout,
                                                const TierFingerprint& fingerprint);
  // The same on files that are open already; `options.folder` is where they are looked for later.
  static Result<std::shared_ptr<DiskTier>> open_on(std::unique_ptr<TierFiles> files, const KvDiskOptions& options, const CoreConfig& config,
                                                   const KvLayout& layout, const TierFingerprint& fingerprint);
  ~DiskTier() override;
  DiskTier(const DiskTier&) = delete;
  DiskTier& operator=(const DiskTier&) = delete;

  // Before the engine runs: it stores nothing of the KV cache itself, but what cools in `upper`, which lives as long.
  void take_from(std::shared_ptr<DramTier> upper);
  // What cools in memory is what comes here.
  [[nodiscard]] bool takes_from_above() const { return spill_ != nullptr; }

  Connector& connector() override { return *connector_; }
  Transport& transport() override { return transport_; }
  void notify_with(const std::function<void()>& notify) override;
  bool tend(double compute_tokens_per_s) override;
  void take_events(const TierNames& names, std::vector<KvEvent>& out) override;
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
  TierWatch watch_;
  std::unique_ptr<OffloadConnector> connector_;
  std::unique_ptr<TierSpill> spill_;  // may be null
  const KvTierPolicy policy_;
  const std::uint64_t budget_bytes_;
  const std::vector<std::uint64_t> group_bytes_;  // of a block, by cache group

  // The engine's thread.
  TierService service_;
  TierCosts costs_;
  Rate load_rate_;
  std::uint64_t bytes_read_ = 0, num_declined_tokens_ = 0;
  double loading_s_ = 0.0;

  // For notify_, and for the wait that stops_ ends.
  std::mutex mutex_;
  std::condition_variable stopping_;
  std::function<void()> notify_;
  // Written by the finder before it says so.
  std::vector<std::uint32_t> empty_;     // places
  std::vector<RestoredBlock> restored_;  // the most recently stored at the back
  // From then on empty_ and restored_ are the engine thread's.
  std::atomic<bool> is_found_ = false;
  std::atomic<bool> stops_ = false;
  std::thread thread_;
};

}  // namespace quire
