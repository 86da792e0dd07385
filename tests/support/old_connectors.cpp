// A library that was compiled with the headers of another version. Its other function must not be called.
#include <cstdlib>

#include "quire/connector_registry.h"

extern "C" QUIRE_API const char* quire_connector_library_version() {
  return "0.0.9";
}
extern "C" QUIRE_API void quire_connector_library_add(quire::ConnectorRegistrar* /*registrar*/) {
  std::abort();
}
