#pragma once
// The tier of an engine in a store that other servers also use: a network store, or the caches of other servers. The tier consists of the
// store, the transport to it, and a connector that queries the store for blocks (remote_connector.h). The ledger contains the keys that
// this server stored or learned from answers, within the budget. When the key of a block that this server stored is evicted from the
// ledger, the block is removed from the store. A separate thread monitors the store: a store that fails, stalls or returns wrong bytes is
// not used for some time and then tried again.
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/connect/tier_slots.h"
#include "engine/stats/rate.h"
#include "engine/tiers/kv_tier.h"
#include "engine/tiers/remote_connector.h"
#include "quire/base/kv_layout.h"
#include "quire/engine_builder.h"
#include "runtime/remote/shared_store.h"
#include "runtime/tier/store_transport.h"
#include "runtime/tier/tier_health.h"
#include "runtime/tier/tier_table.h"

namespace quire {

// Time limits: of a request for the answer to a query, of a connection for a reply, and of a transfer for a block.
struct RemoteTimeouts {
  double lookup_timeout_s = 0.2, reply_s = 2.0, block_s = 5.0;
};

// Options for a store that is already open.
struct RemoteTierOptions {
  std::string name = "remote";  // for metrics and the log
  KvTierPolicy policy = KvTierPolicy::measured;
  bool join_loads = false;
  std::uint64_t budget_bytes = 0, place_bytes = 0;
  RemoteTimeouts timeouts = {};
  bool holds_blocks = true;  // false: the tier stores nothing, and its slots only represent blocks of other servers
};

// Checks the options before anything is opened. Errors: the address, the key file or a number does not meet the requirements of
// EngineBuilder::kv_remote().
Result<void> check_remote(const KvRemoteOptions& options);

class RemoteTier final : public KvTier, private TierSlots {
 public:
  static Result<std::shared_ptr<RemoteTier>> open(const KvRemoteOptions& options, const CoreConfig& config, const KvLayout& layout,
                                                  const TierFingerprint& fingerprint, const RemoteTimeouts& timeouts = {});
  static Result<std::shared_ptr<RemoteTier>> open_on(std::shared_ptr<SharedStore> store, const RemoteTierOptions& options,
                                                     const CoreConfig& config);
  ~RemoteTier() override;
  RemoteTier(const RemoteTier&) = delete;
  RemoteTier& operator=(const RemoteTier&) = delete;

  Connector& connector() override { return *connector_; }
  Transport& transport() override { return transport_; }
  void set_notify(const std::function<void()>& notify) override;
  bool maintain(double compute_tokens_per_s) override;
  void take_events(const TierBlockFormat& format, std::vector<KvEvent>& out) override;
  [[nodiscard]] bool holds_blocks() const override { return options_.holds_blocks; }
  [[nodiscard]] KvTierPolicy policy() const override { return options_.policy; }
  [[nodiscard]] KvTierStats stats() const override;

 private:
  struct Place {
    OffloadKey name;
    bool is_local = false;  // this server has stored the block
  };

  RemoteTier(std::shared_ptr<SharedStore> store, const RemoteTierOptions& options);
  std::uint64_t assign(std::uint64_t place, const OffloadKey& name) override;
  void run();
  bool look(double now_s);
  void serve();

  const std::shared_ptr<SharedStore> store_;
  const RemoteTierOptions options_;
  StoreTransport transport_;
  std::unique_ptr<RemoteConnector> connector_;

  // Used on the engine thread only.
  std::vector<Place> places_;
  TierService service_;
  TierCosts costs_;
  Rate load_rate_;
  std::uint64_t bytes_read_ = 0, num_declined_tokens_ = 0;
  std::uint64_t num_reported_ = 0;  // number of blocks sent to other servers, as of the last maintain()
  double loading_s_ = 0.0;

  // Used only on the monitoring thread.
  double next_try_s_ = 0.0;
  std::uint64_t num_served_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable stopping_;
  // Guarded by mutex_, like all members below.
  std::function<void()> notify_;
  TierHealth loads_, stores_;
  TierService watched_;
  bool should_probe_ = false;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace quire
