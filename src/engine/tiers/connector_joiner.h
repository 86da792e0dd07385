#pragma once
// Combines several connectors and their transports into one connector and one transport. Each connector has a separate tier with its
// transport.
#include <cstdint>
#include <memory>
#include <vector>

#include "core/connect/composite_connector.h"
#include "quire/connector_registry.h"
#include "runtime/transport/routed_transport.h"

namespace quire {

class ConnectorJoiner {
 public:
  void add(ConnectorAndTransport halves);
  // Combines the connectors added so far into one member, which chooses between them by `choice`. Connectors added later are further
  // members.
  void merge(CompositeChoice choice);
  // Returns one connector and one transport for all members. If there is only one pair, returns it unchanged.
  [[nodiscard]] ConnectorAndTransport join(CompositeChoice choice) const;

 private:
  // Connectors that were merged are one member, but `transports_` has one entry for each of them.
  std::vector<CompositeMember> members_;
  std::vector<std::shared_ptr<Transport>> transports_;  // by tier
};

}  // namespace quire
