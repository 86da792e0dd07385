#pragma once
// The disk tier of an engine: the store in a folder, the transport to it, and the connector that decides what goes there and comes back.
//
// What earlier processes have left is found by a thread of its own, which reads the store's table while the model is loaded. The connector
// takes it in portions, between steps (tend()); what it has not taken yet is a miss, and its place is not written to.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/connect/offload_connector.h"
#include "core/connect/tier_places.h"
#include "quire/engine.h"
#include "quire/engine_builder.h"
#include "quire/kv_layout.h"
#include "runtime/tier/disk_store.h"
#include "runtime/tier/disk_transport.h"

namespace quire {

// Where KvDiskOptions::budget_bytes is 0: a quarter of what is free or the folder's own, at most 64 GiB and 2^20 places (which take some
// 200 bytes of memory each).
std::uint64_t default_tier_budget(std::uint64_t free_bytes, std::uint64_t own_bytes, std::uint64_t place_bytes);

class DiskTier final : public TierPlaces {
 public:
  // Whether a cache like this can have one. Errors name kv_disk.
  static Result<void> check(const CoreConfig& config);
  // Errors: see EngineBuilder::kv_disk().
  static Result<std::shared_ptr<DiskTier>> open(const KvDiskOptions& options, const CoreConfig& config, const KvLayout& layout,
                                                const TierFingerprint& fingerprint);
  ~DiskTier() override;
  DiskTier(const DiskTier&) = delete;
  DiskTier& operator=(const DiskTier&) = delete;

  // They keep the tier.
  static std::shared_ptr<Connector> connector_of(const std::shared_ptr<DiskTier>& tier) { return {tier, tier->connector_.get()}; }
  static std::shared_ptr<Transport> transport_of(const std::shared_ptr<DiskTier>& tier) { return {tier, &tier->transport_}; }

  std::uint64_t assign(std::uint64_t place, const OffloadKey& key) override;

  // The engine's thread: `notify` is called when there is something to tend to, by the tier's.
  void notify_with(std::function<void()> notify);
  // The engine's thread, between two steps. Whether it did anything: then there may be more to do, and stats() are others.
  bool tend();
  // The engine's thread.
  [[nodiscard]] KvTierStats stats() const;

 private:
  DiskTier(std::shared_ptr<DiskStore> store, std::uint64_t budget_bytes, std::uint32_t block_size);
  void find_restored();

  const std::shared_ptr<DiskStore> store_;
  DiskTransport transport_;
  std::unique_ptr<OffloadConnector> connector_;
  const std::uint64_t budget_bytes_;
  const std::uint32_t block_size_;  // tokens

  std::mutex mutex_;
  std::function<void()> notify_;
  // Written by the finder before it says so.
  std::vector<std::uint32_t> empty_;     // places
  std::vector<RestoredBlock> restored_;  // the most recently stored at the back
  std::atomic<bool> is_found_ = false;
  std::atomic<bool> stops_ = false;
  std::thread finder_;
};

}  // namespace quire
