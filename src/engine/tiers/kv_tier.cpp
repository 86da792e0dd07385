#include "engine/tiers/kv_tier.h"

#include <utility>

#include "engine/tiers/joined_connectors.h"

namespace quire {

Result<void> connect_tiers(const KvTiers& tiers, EngineSeams& seams, std::vector<ConnectorHalves> others, bool are_stacked) {
  if (tiers.empty() && others.empty()) return {};
  if (seams.connector != nullptr || seams.transport != nullptr) {
    const std::string field = tiers.empty() ? "kv_connector" : "kv_" + tiers[0]->stats().name;
    return fail(ErrorCode::invalid_argument, field, "the engine has a connector of its own", "give one of the two");
  }
  JoinedConnectors all;
  for (const std::shared_ptr<KvTier>& tier : tiers)
    all.add({.connector = KvTier::connector_of(tier), .transport = KvTier::transport_of(tier)});
  all.merge(are_stacked ? CompositeChoice::stacked : CompositeChoice::longest);
  for (ConnectorHalves& other : others) all.add(std::move(other));
  ConnectorHalves one = all.as_one(seams.choice.loads_longest ? CompositeChoice::longest : CompositeChoice::first);
  seams.connector = std::move(one.connector);
  seams.transport = std::move(one.transport);
  return {};
}

}  // namespace quire
