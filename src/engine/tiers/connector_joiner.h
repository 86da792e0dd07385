#pragma once
// Joins several connectors and their transports into one. Each connector has a separate tier with its transport.
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
  // Merges the connectors added so far into one member that chooses by `choice`. Connectors added later are further members.
  void merge(CompositeChoice choice);
  // Returns one connector and one transport for all members. A single pair is returned unchanged.
  [[nodiscard]] ConnectorAndTransport join(CompositeChoice choice) const;

 private:
  // Merged connectors count as one member; `transports_` still has one entry for each.
  std::vector<CompositeMember> members_;
  std::vector<std::shared_ptr<Transport>> transports_;  // by tier
};

}  // namespace quire
