#pragma once
// The parts of the extension module quire._engine; each binds its own types.
#include <nanobind/nanobind.h>

#include <cstdint>
#include <map>
#include <string>

#include "errors.h"
#include "quire/engine_builder.h"

namespace quire::python {

namespace nb = nanobind;

// What an engine is made of, under the names of the flags of `quire serve`.
struct EngineConfig {
  EngineOptions engine;
  bool enable_lora = false;
  std::uint32_t max_loras = 1;                      // with it
  std::map<std::string, std::string> lora_modules;  // folders by name
  KvDramOptions kv_dram;
  KvDiskOptions kv_disk;
  KvRemoteOptions kv_remote;
};

// Sets the attributes that Python names; TypeError with the name for one that is not there, or of another kind.
template <class T>
void set_all(nb::handle object, const nb::kwargs& values, const char* what) {
  for (auto [name, value] : values) {
    auto text = nb::cast<std::string>(nb::str(name));
    if (!nb::hasattr(nb::type<T>(), name))
      throw nb::type_error((text + ": is no option of " + what + "; dir(quire." + what + ") lists them").c_str());
    try {
      nb::setattr(object, name, value);
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_TypeError)) throw;
      const auto given = nb::cast<std::string>(nb::repr(value));
      const auto kind = nb::cast<std::string>(nb::type_name(nb::getattr(object, name).type()));
      throw nb::type_error(text.append(": is ").append(given).append("; give a value of type ").append(kind).c_str());
    }
  }
}

void bind_engine_config(nb::module_& m);
void bind_sampling(nb::module_& m);
void bind_engine(nb::module_& m);

}  // namespace quire::python
