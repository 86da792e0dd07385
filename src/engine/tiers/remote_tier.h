#pragma once
// The tier of an engine in a store that others use, too, which lies in the network or is what other servers hold: the store, the transport
// to it, and a connector that asks it what it has (remote_connector.h). The ledger has the names that this server has stored there or was
// told of, within the budget; what it stored and has no more room for it removes. A thread of its own watches over the store: one that
// fails, stalls or gives other bytes than were stored is left out, and tried again now and then.
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/connect/tier_places.h"
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

// How long what is waited for: by a request for the answer whether there is anything to load, by a connection for a reply, by a transfer
// for a block.
struct RemotePatience {
  double answer_s = 0.2, reply_s = 2.0, block_s = 5.0;
};

// Of a store that is open already.
struct RemoteTierOptions {
  std::string name = "remote";  // for metrics and the log
  KvTierPolicy policy = KvTierPolicy::measured;
  bool join_loads = false;
  std::uint64_t budget_bytes = 0, place_bytes = 0;
  RemotePatience patience = {};
};

// Errors: the address, the key's file or a number is not what EngineBuilder::kv_remote() asks for. Before anything is opened.
Result<void> check_remote(const KvRemoteOptions& options);

class RemoteTier final : public KvTier, private TierPlaces {
 public:
  static Result<std::shared_ptr<RemoteTier>> open(const KvRemoteOptions& options, const CoreConfig& config, const KvLayout& layout,
                                                  const TierFingerprint& fingerprint, const RemotePatience& patience = {});
  static Result<std::shared_ptr<RemoteTier>> open_on(std::shared_ptr<SharedStore> store, const RemoteTierOptions& options,
                                                     const CoreConfig& config);
  ~RemoteTier() override;
  RemoteTier(const RemoteTier&) = delete;
  RemoteTier& operator=(const RemoteTier&) = delete;

  Connector& connector() override { return *connector_; }
  Transport& transport() override { return transport_; }
  void notify_with(const std::function<void()>& notify) override;
  bool tend(double compute_tokens_per_s) override;
  void take_events(const TierNames& names, std::vector<KvEvent>& out) override;
  [[nodiscard]] KvTierPolicy policy() const override { return options_.policy; }
  [[nodiscard]] KvTierStats stats() const override;

 private:
  struct Place {
    OffloadKey name;
    bool is_own = false;  // this server has stored it
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

  // The engine's thread.
  std::vector<Place> places_;
  TierService service_;
  TierCosts costs_;
  Rate load_rate_;
  std::uint64_t bytes_read_ = 0, num_declined_tokens_ = 0;
  std::uint64_t num_told_ = 0;  // blocks that went to others, as of the last tend()
  double loading_s_ = 0.0;

  // The watching thread's.
  double next_try_s_ = 0.0;
  std::uint64_t num_given_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable stopping_;
  // Guarded by mutex_, as all that follows.
  std::function<void()> notify_;
  TierHealth loads_, stores_;
  TierService watched_;
  bool wants_try_ = false;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace quire
