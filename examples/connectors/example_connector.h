#pragma once
// Creates the connectors, the tier and the eviction policy of this folder. library.cpp registers them.
#include <mutex>

#include "prefix_connector.h"

namespace examples {

quire::Result<quire::ConnectorAndTransport> make_example(const quire::ConnectorParameters& parameters,
                                                         const quire::ConnectorContext& context);
quire::Result<quire::ConnectorAndTransport> make_simple_cpu(const quire::ConnectorParameters& parameters,
                                                            const quire::ConnectorContext& context);
quire::Result<quire::ConnectorAndTransport> make_decode_bench(const quire::ConnectorParameters& parameters,
                                                              const quire::ConnectorContext& context);
quire::Result<quire::OffloadTier> make_heap_tier(const quire::ConnectorParameters& parameters, const quire::ConnectorContext& context);
std::unique_ptr<quire::EvictionPolicy> make_fifo(std::uint32_t num_slots, const quire::SlotKeys& keys);

}  // namespace examples
