// A shared library with connectors, a tier and an eviction policy. Example of use: quire serve MODEL --kv-connector-library PATH.so
// --kv-connector SimpleCPUOffloadConnector,cpu_bytes_to_use=1000000000
#include "example_connector.h"

namespace {

void add_names(quire::ConnectorRegistrar& names) {
  names.add("ExampleConnector", examples::make_example);
  names.add("SimpleCPUOffloadConnector", examples::make_simple_cpu);
  names.add("DecodeBenchConnector", examples::make_decode_bench);
  names.add_tier("HeapTier", examples::make_heap_tier);
  names.add_policy("fifo", examples::make_fifo);
}

}  // namespace

QUIRE_CONNECTOR_LIBRARY(add_names)
