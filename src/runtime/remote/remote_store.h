#pragma once
// KV blocks in a store in the network that several servers share (Redis, or what speaks as it does). Nothing that comes back is believed:
// a value that does not verify under the deployment's key is a miss, as is one that is not there, or does not come in time.
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "quire/base/error.h"
#include "runtime/remote/remote_line.h"
#include "runtime/remote/remote_value.h"
#include "runtime/remote/shared_store_count.h"

namespace quire {

struct RemoteStoreOptions {
  RemoteAddress address;
  std::vector<std::byte> secret;  // the deployment's; empty: anybody can make a block
  TierFingerprint fingerprint{};
  std::uint32_t num_places = 0;            // numbers that jobs may carry: they mean nothing here
  std::vector<std::uint64_t> group_bytes;  // of a block, by cache group
  std::uint64_t ttl_s = 0;                 // a block that is neither stored nor loaded for so long is forgotten by the store; at least 1
  bool gives_way = false;                  // stores take little of cores that others want (base/core_share.h)
  double patience_s = 2.0;                 // without a reply
};

// Any thread may call it.
class RemoteStore final : public SharedStore {
 public:
  // Nothing is asked yet: a store that is away is one that fails. Errors: this build has no client; certificates that cannot be read.
  static Result<std::unique_ptr<RemoteStore>> open(RemoteStoreOptions options);
  // What is not over fails.
  ~RemoteStore() override;
  RemoteStore(const RemoteStore&) = delete;
  RemoteStore& operator=(const RemoteStore&) = delete;

  [[nodiscard]] std::uint32_t num_places() const override { return options_.num_places; }
  [[nodiscard]] std::uint64_t block_bytes() const override { return block_bytes_; }
  void submit(TierJob job) override;

  // With a value of the right length.
  void ask(std::vector<OffloadKey> names, std::function<bool()> is_wanted, std::function<void(const Answer&)> over) override;
  void forget(const OffloadKey& name) override;
  void forbid(const OffloadKey& name) override;
  // Reads what was stored or loaded lately, to see whether and how fast that goes, or, where nothing was, asks for what cannot be there.
  void try_loads() override;
  [[nodiscard]] bool is_trying() const override { return count_.is_trying(); }

  [[nodiscard]] SharedStoreStats stats() const override { return count_.stats(); }
  [[nodiscard]] std::string last_problem() const override;

 private:
  struct Question;

  RemoteStore(RemoteStoreOptions options, std::shared_ptr<const NetTls> tls);
  void submit_store(const std::shared_ptr<TierJob>& job, std::string key);
  void submit_load(const std::shared_ptr<TierJob>& job, std::string key);
  TierOutcome take_loaded(const TierJob& job, const std::string& key, const RemoteReply& reply);
  void renew(const std::string& key);
  void remove(std::string key);
  [[nodiscard]] bool is_forbidden(const std::string& key) const;
  void end(const TierJob& job, TierOutcome outcome);

  const RemoteStoreOptions options_;
  const std::uint64_t block_bytes_;
  const RemoteKeys keys_;
  // Each is used by its line's thread alone.
  RemoteSeal store_seal_, load_seal_;
  SharedStoreCount count_;

  mutable std::mutex mutex_;
  std::unordered_set<std::string> forbidden_;  // keys; guarded by mutex_

  // Last, so that they end first.
  const std::unique_ptr<RemoteLine> stores_, loads_, asks_;
};

}  // namespace quire
