#pragma once
// A tier below the KV cache, as the engine sees it: a connector that decides, a transport that moves blocks, and work between steps.
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

// Properties that all blocks have in common, for events.
struct TierBlockFormat {
  std::uint32_t hash_bytes = 32;  // of a block hash
  std::uint32_t block_size = 16;  // in tokens
};

class KvTier {
 public:
  virtual ~KvTier() = default;
  // Both references are valid as long as the tier lives.
  virtual Connector& connector() = 0;
  virtual Transport& transport() = 0;
  // Sets the callback; called on the engine thread. `notify` is called when maintain() has work, from any thread.
  virtual void set_notify(const std::function<void()>& /*notify*/) {}
  // Called on the engine thread between two steps. Returns whether it did anything: then there may be more to do, and stats() has changed.
  // `compute_tokens_per_s` is the speed of prefill; 0 if it is not known yet.
  virtual bool maintain(double /*compute_tokens_per_s*/) { return false; }
  // Appends events for the blocks that the tier has stored or removed since the last call. The events have no tokens and no parents, like
  // the events of vLLM's offloading connector. Called on the engine thread between two steps. Appends nothing if CoreConfig::report has
  // events off.
  virtual void take_events(const TierBlockFormat& /*format*/, std::vector<KvEvent>& /*out*/) {}
  // Returns the role of a tier that gives blocks to other servers or takes them (peer_tier.h). Such a tier must ignore requests without
  // kv_transfer_params.
  [[nodiscard]] virtual KvRole role() const { return KvRole::none; }
  // Returns an error that names `kv_transfer_params.*` if a request may not have these params. Called on any thread.
  [[nodiscard]] virtual Result<void> check(const KvTransferParams& /*params*/) const { return {}; }
  // Called on the engine thread before this request is added to the core.
  virtual void expect(RequestId /*request*/, const KvTransferParams& /*params*/) {}
  // Called for a request that will not be added to the core, or has ended before it was added. Called on any thread.
  virtual void decline(const KvTransferParams& /*params*/) {}
  // Called on the engine thread when the request has ended. Returns the params for its client once; null if there are no params.
  virtual std::shared_ptr<const KvTransferParams> take_transfer_params(RequestId /*request*/) { return nullptr; }
  // Called on the engine thread when the engine stops and no request runs. Blocks kept for other servers then expire soon.
  virtual void expire_leases() {}
  [[nodiscard]] virtual KvTierPolicy policy() const = 0;
  // Returns whether this is one of quire's tiers, not a connector that was requested by name.
  [[nodiscard]] virtual bool is_builtin() const { return true; }
  // Returns whether the slots hold blocks of this server, not just offload keys of blocks that other servers hold.
  [[nodiscard]] virtual bool holds_blocks() const { return true; }
  // Called on the engine thread.
  [[nodiscard]] virtual KvTierStats stats() const = 0;

  // The returned pointers keep the tier alive.
  static std::shared_ptr<Connector> connector_of(const std::shared_ptr<KvTier>& tier) { return {tier, &tier->connector()}; }
  static std::shared_ptr<Transport> transport_of(const std::shared_ptr<KvTier>& tier) { return {tier, &tier->transport()}; }
};

// Returns `name`, or `name` with "_2", "_3", ... after it if it is taken. Adds the result to `taken`.
std::string unique_name(const std::string& name, std::set<std::string>& taken);

// Ordered from the nearest tier to the farthest.
using KvTiers = std::vector<std::shared_ptr<KvTier>>;

// Joins the tiers, followed by `others`, into the connector and the transport of an engine. Every connector may store each block. Among the
// tiers, a request loads from the one that has most of its prompt; with `are_stacked`, it loads from each tier the part that this tier has.
// The tiers together count as the first connector. A request loads from the first connector that has something, or as
// ConnectorChoice::prefers_longest_match says. Errors: the engine already has a connector or a transport.
Result<void> connect_tiers(const KvTiers& tiers, EngineSeams& seams, std::vector<ConnectorAndTransport> others = {},
                           bool are_stacked = false);

}  // namespace quire
