#include "engine/tiers/kv_tier.h"

#include <utility>

#include "engine/tiers/connector_joiner.h"

namespace quire {

std::string unique_name(const std::string& name, std::set<std::string>& taken) {
  std::string unique = name;
  for (std::uint32_t count = 2; !taken.insert(unique).second; ++count) unique = name + "_" + std::to_string(count);
  return unique;
}

Result<void> connect_tiers(const KvTiers& tiers, EngineSeams& seams, std::vector<ConnectorAndTransport> others, bool are_stacked) {
  if (tiers.empty() && others.empty()) return {};
  if (seams.connector != nullptr || seams.transport != nullptr) {
    const std::string field = tiers.empty() ? "kv_connector" : "kv_" + tiers[0]->stats().name;
    return fail(ErrorCode::invalid_argument, field, "is set, but the engine already has a connector", "use only one of the two");
  }
  ConnectorJoiner all;
  for (const std::shared_ptr<KvTier>& tier : tiers)
    all.add({.connector = KvTier::connector_of(tier), .transport = KvTier::transport_of(tier)});
  all.merge(are_stacked ? CompositeChoice::stacked : CompositeChoice::longest);
  for (ConnectorAndTransport& other : others) all.add(std::move(other));
  ConnectorAndTransport one = all.join(seams.choice.prefers_longest_match ? CompositeChoice::longest : CompositeChoice::first);
  seams.connector = std::move(one.connector);
  seams.transport = std::move(one.transport);
  return {};
}

}  // namespace quire
