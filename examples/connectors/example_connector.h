#pragma once
// The connectors of this folder, as their library adds them.
#include <mutex>

#include "prefix_connector.h"

namespace examples {

quire::Result<quire::ConnectorHalves> make_example(const quire::ConnectorParameters& parameters, const quire::ConnectorContext& context);
quire::Result<quire::ConnectorHalves> make_simple_cpu(const quire::ConnectorParameters& parameters, const quire::ConnectorContext& context);
quire::Result<quire::ConnectorHalves> make_decode_bench(const quire::ConnectorParameters& parameters,
                                                        const quire::ConnectorContext& context);

}  // namespace examples
