#pragma once
// The engine's interface to a tier below the KV cache: a connector that decides, a transport that moves blocks, and work between steps.
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "quire/base/kv_events.h"
#include "quire/connector.h"
#include "quire/engine.h"
#include "quire/engine_builder.h"
#include "quire/transport.h"

namespace quire {

// Properties of all blocks that KV events report.
struct TierBlockFormat {
  std::uint32_t hash_bytes = 32;  // size of a block hash
  std::uint32_t block_size = 16;  // in tokens
};

class KvTier {
 public:
  virtual ~KvTier() = default;
  // Return references that are valid as long as the tier lives.
  virtual Connector& connector() = 0;
  virtual Transport& transport() = 0;
  // Sets the callback. Called on the engine thread. The tier calls `notify` on any thread when maintain() has work.
  virtual void set_notify(const std::function<void()>& /*notify*/) {}
  // Does pending work. Called on the engine thread between two steps. Returns whether the call did anything; if true, there may be more
  // work, and stats() has changed. `compute_tokens_per_s` is the prefill speed; 0 if it is not known yet.
  virtual bool maintain(double /*compute_tokens_per_s*/) { return false; }
  // Appends events for the blocks that the tier has stored or removed since the last call. Like the events of vLLM's offloading connector,
  // the events have no tokens and no parents. Called on the engine thread between two steps. Appends nothing if CoreConfig::report has
  // events off.
  virtual void take_events(const TierBlockFormat& /*format*/, std::vector<KvEvent>& /*out*/) {}
  // Returns the role of a tier that exchanges blocks with other servers (peer_tier.h). If the role is not none, the tier must ignore
  // requests without kv_transfer_params.
  [[nodiscard]] virtual KvRole role() const { return KvRole::none; }
  // Returns an error that names `kv_transfer_params.*` if requests with these parameters are not allowed. Called on any thread.
  [[nodiscard]] virtual Result<void> check(const KvTransferParams& /*params*/) const { return {}; }
  // Registers the parameters of a request. Called on the engine thread before the request is added to the core.
  virtual void expect(RequestId /*request*/, const KvTransferParams& /*params*/) {}
  // Called on any thread for a request that will not be added to the core, or has ended before it was added.
  virtual void decline(const KvTransferParams& /*params*/) {}
  // Returns the parameters for the client of an ended request, only once; null if there are no parameters. Called on the engine thread.
  virtual std::shared_ptr<const KvTransferParams> take_transfer_params(RequestId /*request*/) { return nullptr; }
  // Makes leases for blocks that are kept for other servers expire soon. Called on the engine thread when the engine stops and no request
  // runs.
  virtual void expire_leases() {}
  [[nodiscard]] virtual KvTierPolicy policy() const = 0;
  // Returns whether this is one of quire's tiers, not a connector that was requested by name.
  [[nodiscard]] virtual bool is_builtin() const { return true; }
  // Returns whether the slots hold blocks of this server; false if they only represent blocks that other servers hold.
  [[nodiscard]] virtual bool holds_blocks() const { return true; }
  // Returns the statistics. Called on the engine thread.
  [[nodiscard]] virtual KvTierStats stats() const = 0;

  // Return pointers that keep the tier alive.
  static std::shared_ptr<Connector> connector_of(const std::shared_ptr<KvTier>& tier) { return {tier, &tier->connector()}; }
  static std::shared_ptr<Transport> transport_of(const std::shared_ptr<KvTier>& tier) { return {tier, &tier->transport()}; }
};

// Returns `name` or, if it is in `taken`, `name` with the first unused suffix of "_2", "_3", ... Adds the result to `taken`.
std::string unique_name(const std::string& name, std::set<std::string>& taken);

// Tiers in order from the nearest to the farthest.
using KvTiers = std::vector<std::shared_ptr<KvTier>>;

// Combines the tiers, followed by `others`, into one connector and one transport, and stores them in the seams. Every connector may store
// each block. Among the tiers, a request loads from the tier that has most of the prompt; with `are_stacked`, it loads each part of its
// prompt from the tier that has the part. All tiers together count as the first connector. A request loads from the first connector that
// has blocks for it, or as ConnectorChoice::prefers_longest_match says. Error: the engine already has a connector or a transport.
Result<void> connect_tiers(const KvTiers& tiers, EngineSeams& seams, std::vector<ConnectorAndTransport> others = {},
                           bool are_stacked = false);

}  // namespace quire
