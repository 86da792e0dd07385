#pragma once
// The tier of an engine that keeps blocks of prompts for other servers, or loads blocks that other servers computed (kv_transfer_params).
// The tier consists of the side channel with its threads, the transport, and the connector that knows the requests (peer_connector.h). The
// tier has no block storage: kept blocks stay in the KV cache, under a lease.
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "engine/tiers/kv_tier.h"
#include "engine/tiers/peer_connector.h"
#include "quire/base/kv_layout.h"
#include "quire/engine_builder.h"
#include "runtime/remote/peer_store.h"
#include "runtime/tier/store_transport.h"

namespace quire {

// Checks the options before anything is opened. Errors: an address, a key or a time does not meet the requirements of
// EngineBuilder::kv_peer().
Result<void> check_peer(const KvPeerOptions& options);

class PeerTier final : public KvTier {
 public:
  using Producers = std::set<std::pair<std::string, std::uint16_t>>;  // host in the form of canonical_host(), and port (0: any port)

  static Result<std::shared_ptr<PeerTier>> open(const KvPeerOptions& options, const CoreConfig& config, const KvLayout& layout,
                                                const TierFingerprint& fingerprint);

  Connector& connector() override { return connector_; }
  Transport& transport() override { return transport_; }
  bool maintain(double compute_tokens_per_s) override;
  [[nodiscard]] KvRole role() const override { return role_; }
  // Returns an error if a request names a server that is not in KvPeerOptions::producers.
  [[nodiscard]] Result<void> check(const KvTransferParams& params) const override;
  void expect(RequestId request, const KvTransferParams& params) override { connector_.expect(request, params); }
  void decline(const KvTransferParams& params) override;
  std::shared_ptr<const KvTransferParams> take_transfer_params(RequestId request) override {
    return connector_.take_transfer_params(request);
  }
  void expire_leases() override;
  [[nodiscard]] KvTierPolicy policy() const override { return KvTierPolicy::exact; }
  // Returns false, because the tier stores blocks only for other servers; this server never finds them.
  [[nodiscard]] bool is_builtin() const override { return false; }
  [[nodiscard]] bool holds_blocks() const override { return false; }
  [[nodiscard]] KvTierStats stats() const override;

 private:
  PeerTier(KvRole role, Producers producers, std::shared_ptr<PeerStore> store, PeerConnectorOptions options, double load_patience_s);

  const KvRole role_;
  const Producers producers_;
  const std::shared_ptr<PeerStore> store_;
  StoreTransport transport_;
  PeerConnector connector_;
};

}  // namespace quire
