#pragma once
// A tier that stores nothing. It records the engine's calls and gives the answers that a test sets before the engine starts.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/simulated_engine.h"
#include "engine/tiers/kv_tier.h"
#include "support/scripted_connector.h"

namespace quire::test {

class RecordingTier final : public KvTier, public QuietConnector, public Transport {
 public:
  // The answers.
  KvRole tier_role = KvRole::none;
  KvTierPolicy tier_policy = KvTierPolicy::measured;
  bool builtin = true, has_blocks = true, has_groups = false;
  KvTierStats numbers = {.name = "dram"};
  std::optional<std::vector<TierMatch>> found;         // answer of peek(); nullopt: unknown
  std::string refused_host;                            // check() refuses params with this host
  std::shared_ptr<const KvTransferParams> for_client;  // answer of take_transfer_params()
  std::uint32_t num_busy = 0;                          // how often maintain() returns true

  // The calls so far, such as "expect 3", in order. maintain() and stats() are only counted.
  [[nodiscard]] std::vector<std::string> calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  [[nodiscard]] std::size_t num_calls(const std::string& call) const {
    const std::vector<std::string> all = calls();
    return static_cast<std::size_t>(std::ranges::count(all, call));
  }
  [[nodiscard]] std::uint32_t num_maintained() const {
    const std::lock_guard lock(mutex_);
    return num_maintained_;
  }
  [[nodiscard]] bool can_notify() const {
    const std::lock_guard lock(mutex_);
    return notify_ != nullptr;
  }
  void notify() const {
    const std::lock_guard lock(mutex_);
    notify_();
  }

  Connector& connector() override { return *this; }
  Transport& transport() override { return *this; }
  void set_notify(const std::function<void()>& notify) override {
    const std::lock_guard lock(mutex_);
    notify_ = notify;
  }
  bool maintain(double /*compute_tokens_per_s*/) override {
    const std::lock_guard lock(mutex_);
    return ++num_maintained_ <= num_busy;
  }
  void take_events(const TierBlockFormat& format, std::vector<KvEvent>& /*out*/) override {
    note(fmt::format("take_events hash_bytes={} block_size={}", format.hash_bytes, format.block_size));
  }
  [[nodiscard]] KvRole role() const override { return tier_role; }
  [[nodiscard]] Result<void> check(const KvTransferParams& params) const override {
    if (refused_host.empty() || params.remote_host != refused_host) return {};
    return fail(ErrorCode::invalid_argument, "kv_transfer_params.remote_host", "is refused", "use another one");
  }
  void expect(RequestId request, const KvTransferParams& params) override {
    note(fmt::format("expect {} from {}", request.value, params.remote_host));
  }
  void decline(const KvTransferParams& params) override { note("decline " + params.remote_host); }
  std::shared_ptr<const KvTransferParams> take_transfer_params(RequestId request) override {
    note(fmt::format("take_transfer_params {}", request.value));
    return for_client;
  }
  [[nodiscard]] KvTierPolicy policy() const override { return tier_policy; }
  [[nodiscard]] bool is_builtin() const override { return builtin; }
  [[nodiscard]] bool holds_blocks() const override { return has_blocks; }
  [[nodiscard]] KvTierStats stats() const override { return numbers; }

  [[nodiscard]] bool supports_groups() const override { return has_groups; }
  ExternalMatch match(const RequestView& request, std::uint32_t /*num_local_tokens*/) override {
    note(fmt::format("match {}", request.id.value));
    return {.num_tokens = 0};
  }
  bool peek(const RequestView& /*request*/, std::uint32_t /*num_local_tokens*/, std::vector<TierMatch>& matches) override {
    if (found) matches.insert(matches.end(), found->begin(), found->end());
    return found.has_value();
  }

  void attach(const KvPages& /*pages*/, std::function<void()> /*notify*/) override {}
  void start(const Transfer& /*transfer*/) override {}
  void poll(std::vector<TransferCompletion>& /*over*/) override {}
  void wait(TransferId /*transfer*/) override {}
  void detach() override {}

 private:
  void note(std::string call) {
    const std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
  }

  mutable std::mutex mutex_;
  std::vector<std::string> calls_;
  std::uint32_t num_maintained_ = 0;
  std::function<void()> notify_;
};

// Starts an engine with these tiers. Its connector is the one of the first tier.
inline std::unique_ptr<Engine> start_with_tiers(std::vector<std::shared_ptr<RecordingTier>> tiers, quire::Setup setup = {},
                                                const Mode& mode = kModes[0]) {
  for (const std::shared_ptr<RecordingTier>& tier : tiers) setup.tiers.push_back(tier);
  if (!tiers.empty()) {
    setup.seams.connector = KvTier::connector_of(tiers[0]);
    setup.seams.transport = KvTier::transport_of(tiers[0]);
  }
  return quire::start(mode, std::move(setup));
}

}  // namespace quire::test
