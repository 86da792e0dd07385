#include "engine/kv_tier.h"

#include <cstdint>
#include <utility>

#include "core/connect/composite_connector.h"
#include "runtime/transport/routed_transport.h"

namespace quire {

Result<void> connect_tiers(const KvTiers& tiers, EngineSeams& seams) {
  if (tiers.empty()) return {};
  if (seams.connector != nullptr || seams.transport != nullptr)
    return fail(ErrorCode::invalid_argument, tiers[0]->stats().name == "dram" ? "kv_dram" : "kv_disk",
                "the engine has a connector of its own", "give one of the two");
  if (tiers.size() == 1) {
    seams.connector = KvTier::connector_of(tiers[0]);
    seams.transport = KvTier::transport_of(tiers[0]);
    return {};
  }
  std::vector<CompositeMember> members;
  const auto routed = std::make_shared<RoutedTransport>();
  for (std::uint32_t i = 0; i < tiers.size(); ++i) {
    members.push_back({KvTier::connector_of(tiers[i]), i});
    routed->add(i, KvTier::transport_of(tiers[i]));
  }
  seams.connector = std::make_shared<CompositeConnector>(std::move(members), CompositeChoice::longest);
  seams.transport = routed;
  return {};
}

}  // namespace quire
