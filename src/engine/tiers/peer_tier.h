#pragma once
// The tier of an engine that keeps blocks of prompts for other servers, or loads those that others have computed (kv_transfer_params): the
// side channel with its threads, the transport, and the connector that knows which requests are meant (peer_connector.h). It holds nothing
// of its own: what it gives lies in the KV cache, under a lease.
#include <memory>
#include <string>

#include "engine/tiers/kv_tier.h"
#include "engine/tiers/peer_connector.h"
#include "quire/base/kv_layout.h"
#include "quire/engine_builder.h"
#include "runtime/remote/peer_store.h"
#include "runtime/tier/store_transport.h"

namespace quire {

// Errors: an address, a key or a time is not what EngineBuilder::kv_peer() asks for. Before anything is opened.
Result<void> check_peer(const KvPeerOptions& options);

class PeerTier final : public KvTier {
 public:
  static Result<std::shared_ptr<PeerTier>> open(const KvPeerOptions& options, const CoreConfig& config, const KvLayout& layout,
                                                const TierFingerprint& fingerprint);

  Connector& connector() override { return connector_; }
  Transport& transport() override { return transport_; }
  bool tend(double compute_tokens_per_s) override;
  [[nodiscard]] KvRole role() const override { return role_; }
  void expect(RequestId request, const KvTransferParams& params) override { connector_.expect(request, params); }
  void decline(const KvTransferParams& params) override;
  std::shared_ptr<const KvTransferParams> take_answer(RequestId request) override { return connector_.take_answer(request); }
  void hurry() override;
  [[nodiscard]] KvTierPolicy policy() const override { return KvTierPolicy::exact; }
  // It stores what others ask for, and nothing that this server would find.
  [[nodiscard]] bool is_own() const override { return false; }
  [[nodiscard]] KvTierStats stats() const override;

 private:
  PeerTier(KvRole role, std::shared_ptr<PeerStore> store, PeerConnectorOptions options, double load_patience_s);

  const KvRole role_;
  const std::shared_ptr<PeerStore> store_;
  StoreTransport transport_;
  PeerConnector connector_;
};

}  // namespace quire
