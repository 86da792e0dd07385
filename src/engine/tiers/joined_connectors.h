#pragma once
// Several connectors as one: each has a tier of its own, whose transfers its own transport moves.
#include <cstdint>
#include <memory>
#include <vector>

#include "core/connect/composite_connector.h"
#include "quire/connector_registry.h"
#include "runtime/transport/routed_transport.h"

namespace quire {

class JoinedConnectors {
 public:
  void add(ConnectorHalves halves);
  // Those that were added so far are one among those that are added from now on.
  void merge(CompositeChoice choice);
  // Alone it stays what it is.
  [[nodiscard]] ConnectorHalves as_one(CompositeChoice choice) const;

 private:
  // Those that were merged are one of these; transports_ keeps each.
  std::vector<CompositeMember> members_;
  std::vector<std::shared_ptr<Transport>> transports_;  // by tier
};

}  // namespace quire
