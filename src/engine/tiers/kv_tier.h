#pragma once
// A tier below the KV cache, as the engine sees it: what decides (a connector), what moves (a transport), and what is to be done between
// steps.
#include <functional>
#include <memory>
#include <vector>

#include "quire/base/kv_events.h"
#include "quire/connector.h"
#include "quire/engine.h"
#include "quire/engine_builder.h"
#include "quire/transport.h"

namespace quire {

// What is the same of all blocks.
struct TierNames {
  std::uint32_t hash_bytes = 32;  // of a name
  std::uint32_t block_size = 16;  // tokens
};

class KvTier {
 public:
  virtual ~KvTier() = default;
  // They live as long as the tier.
  virtual Connector& connector() = 0;
  virtual Transport& transport() = 0;
  // The engine's thread: `notify` is called when there is something to tend to, from any thread.
  virtual void notify_with(const std::function<void()>& /*notify*/) {}
  // The engine's thread, between two steps. Whether it did anything: then there may be more to do, and stats() are others.
  // `compute_tokens_per_s`: how fast prompts are computed; 0: not known yet.
  virtual bool tend(double /*compute_tokens_per_s*/) { return false; }
  // Of blocks that it holds or has given up since the last call, appended: without tokens and parents, as vLLM's offloading connector tells
  // of them. The engine's thread, between two steps; nothing where CoreConfig::report has events off.
  virtual void take_events(const TierNames& /*names*/, std::vector<KvEvent>& /*out*/) {}
  // Of a tier that hands blocks on to other servers, or takes them (peer_tier.h); it must say nothing to requests without params.
  [[nodiscard]] virtual KvRole role() const { return KvRole::none; }
  // The engine's thread: this request is about to be added to the core.
  virtual void expect(RequestId /*request*/, const KvTransferParams& /*params*/) {}
  // Of one that will not be, or has ended before that. Any thread.
  virtual void decline(const KvTransferParams& /*params*/) {}
  // The engine's thread, when the request has ended: what its client is told, once.
  virtual std::shared_ptr<const KvTransferParams> take_answer(RequestId /*request*/) { return nullptr; }
  // The engine's thread: it stops, and nothing runs any more; what it keeps for others is not kept for long.
  virtual void hurry() {}
  [[nodiscard]] virtual KvTierPolicy policy() const = 0;
  // One of quire's own tiers, and not a connector that was asked for by name.
  [[nodiscard]] virtual bool is_own() const { return true; }
  // The engine's thread.
  [[nodiscard]] virtual KvTierStats stats() const = 0;

  // They keep the tier.
  static std::shared_ptr<Connector> connector_of(const std::shared_ptr<KvTier>& tier) { return {tier, &tier->connector()}; }
  static std::shared_ptr<Transport> transport_of(const std::shared_ptr<KvTier>& tier) { return {tier, &tier->transport()}; }
};

// The nearest first.
using KvTiers = std::vector<std::shared_ptr<KvTier>>;

// Makes them, and the others behind them, the connector and the transport of an engine: one, or several as one. Then all is stored in each.
// Of the tiers a request loads from the one that has most of its prompt; where they are spread (`are_stacked`), from each what it has.
// Together they are the first connector, and it loads from the first
// that has something, or as ConnectorChoice::loads_longest says. Errors: there is a connector or a transport already.
Result<void> connect_tiers(const KvTiers& tiers, EngineSeams& seams, std::vector<ConnectorHalves> others = {}, bool are_stacked = false);

}  // namespace quire
