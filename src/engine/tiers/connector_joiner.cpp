#include "engine/tiers/connector_joiner.h"

#include <utility>

namespace quire {

void ConnectorJoiner::add(ConnectorAndTransport halves) {
  members_.push_back({.connector = std::move(halves.connector), .tier = static_cast<std::uint32_t>(transports_.size())});
  transports_.push_back(std::move(halves.transport));
}

void ConnectorJoiner::merge(CompositeChoice choice) {
  if (members_.size() < 2) return;
  auto merged = std::make_shared<CompositeConnector>(std::move(members_), choice);
  members_.assign(1, {.connector = std::move(merged), .tier = std::nullopt});
}

ConnectorAndTransport ConnectorJoiner::join(CompositeChoice choice) const {
  if (transports_.size() == 1) return {.connector = members_[0].connector, .transport = transports_[0]};
  const auto routed = std::make_shared<RoutedTransport>();
  for (std::uint32_t tier = 0; tier < transports_.size(); ++tier) routed->add(tier, transports_[tier]);
  if (members_.size() == 1) return {.connector = members_[0].connector, .transport = routed};
  return {.connector = std::make_shared<CompositeConnector>(members_, choice), .transport = routed};
}

}  // namespace quire
