#include "engine/tiers/joined_connectors.h"

#include <utility>

namespace quire {

void JoinedConnectors::add(ConnectorHalves halves) {
  members_.push_back({.connector = std::move(halves.connector), .tier = static_cast<std::uint32_t>(transports_.size())});
  transports_.push_back(std::move(halves.transport));
}

void JoinedConnectors::merge(CompositeChoice choice) {
  if (members_.size() < 2) return;
  auto merged = std::make_shared<CompositeConnector>(std::move(members_), choice);
  members_.assign(1, {.connector = std::move(merged), .tier = std::nullopt});
}

ConnectorHalves JoinedConnectors::as_one(CompositeChoice choice) const {
  if (transports_.size() == 1) return {.connector = members_[0].connector, .transport = transports_[0]};
  const auto routed = std::make_shared<RoutedTransport>();
  for (std::uint32_t tier = 0; tier < transports_.size(); ++tier) routed->add(tier, transports_[tier]);
  if (members_.size() == 1) return {.connector = members_[0].connector, .transport = routed};
  return {.connector = std::make_shared<CompositeConnector>(members_, choice), .transport = routed};
}

}  // namespace quire
