#pragma once
// What there is in this folder, as its library adds it.
#include <mutex>

#include "prefix_connector.h"

namespace examples {

quire::Result<quire::ConnectorHalves> make_example(const quire::ConnectorParameters& parameters, const quire::ConnectorContext& context);
quire::Result<quire::ConnectorHalves> make_simple_cpu(const quire::ConnectorParameters& parameters, const quire::ConnectorContext& context);
quire::Result<quire::ConnectorHalves> make_decode_bench(const quire::ConnectorParameters& parameters,
                                                        const quire::ConnectorContext& context);
quire::Result<quire::OffloadTier> make_heap_tier(const quire::ConnectorParameters& parameters, const quire::ConnectorContext& context);
std::unique_ptr<quire::EvictionPolicy> make_fifo(std::uint32_t num_slots, const quire::SlotKeys& keys);

}  // namespace examples
