#pragma once
// Keeps KV blocks in a store in the network that several servers share (Redis or a compatible store). The store's replies are not trusted:
// a value that does not verify with the deployment's secret is a miss, like a missing or late value.
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "quire/base/error.h"
#include "runtime/remote/remote_connection_pool.h"
#include "runtime/remote/remote_value.h"
#include "runtime/remote/shared_store_counters.h"

namespace quire {

struct RemoteStoreOptions {
  RemoteAddress address;
  std::vector<std::byte> secret;  // the deployment's secret; empty: any client can write a valid block
  TierFingerprint fingerprint{};
  std::uint32_t num_places = 0;            // upper bound of the slot numbers in jobs; the store ignores these numbers
  std::vector<std::uint64_t> group_bytes;  // bytes of a block, by cache group
  std::uint64_t ttl_s = 0;                 // a block expires this long after its last store or load; at least 1
  bool yields_cores = false;               // stores use little of the cores that other threads need (base/cpu_share.h)
  double timeout_s = 2.0;                  // longest time without a reply
};

// Any thread may call the functions.
class RemoteStore final : public SharedStore {
 public:
  // Creates the store without opening a connection. While the store cannot be reached, jobs fail. Errors: this build has no client; the
  // certificates cannot be read.
  static Result<std::unique_ptr<RemoteStore>> open(RemoteStoreOptions options);
  // Ends open jobs as failed.
  ~RemoteStore() override;
  RemoteStore(const RemoteStore&) = delete;
  RemoteStore& operator=(const RemoteStore&) = delete;

  [[nodiscard]] std::uint32_t num_places() const override { return options_.num_places; }
  [[nodiscard]] std::uint64_t block_bytes() const override { return block_bytes_; }
  void submit(TierJob job) override;

  // A block counts as stored if its value has the expected length.
  void ask(std::vector<OffloadKey> names, std::function<bool()> is_wanted, std::function<void(const Answer&)> over) override;
  void forget(const OffloadKey& name) override;
  void mark_untrusted(const OffloadKey& name) override;
  // Loads recently stored or loaded blocks, to measure whether and how fast loads work. Without such blocks, loads a key that cannot exist.
  void probe_loads() override;
  [[nodiscard]] bool is_probing() const override { return count_.is_probing(); }

  [[nodiscard]] SharedStoreStats stats() const override { return count_.stats(); }
  [[nodiscard]] std::string last_problem() const override;

 private:
  struct Lookup;

  RemoteStore(RemoteStoreOptions options, std::shared_ptr<const NetTls> tls);
  void submit_store(const std::shared_ptr<TierJob>& job, std::string key);
  void submit_load(const std::shared_ptr<TierJob>& job, std::string key);
  TierOutcome verify_loaded(const TierJob& job, const std::string& key, const RemoteReply& reply);
  void renew(const std::string& key);
  void remove(std::string key);
  [[nodiscard]] bool is_untrusted(const std::string& key) const;
  void end(const TierJob& job, TierOutcome outcome);

  const RemoteStoreOptions options_;
  const std::uint64_t block_bytes_;
  const RemoteKeys keys_;
  // Each codec is used only on the thread of its pool.
  RemoteValueCodec store_codec_, load_codec_;
  SharedStoreCounters count_;

  mutable std::mutex mutex_;
  std::unordered_set<std::string> untrusted_;  // keys; guarded by `mutex_`

  // Last, so that the pools are destroyed first.
  const std::unique_ptr<RemoteConnectionPool> stores_, loads_, asks_;
};

}  // namespace quire
