#pragma once
// The parts of the extension module quire._engine. Each part binds its own types.
#include <nanobind/nanobind.h>

#include <cstdint>
#include <map>
#include <string>

#include "errors.h"
#include "quire/engine_builder.h"

namespace quire::python {

namespace nb = nanobind;

// The options of an engine, under the names of the flags of `quire serve`.
struct EngineConfig {
  EngineConfig() { engine.adapters.max_loras = 1; }

  EngineOptions engine;
  bool enable_lora = false;                         // if false, `engine.adapters.max_loras` has no effect
  std::map<std::string, std::string> lora_modules;  // name -> folder
  KvDramOptions kv_dram;
  KvDiskOptions kv_disk;
  KvRemoteOptions kv_remote;
};

// Sets the given attributes. Raises TypeError with the name if an attribute does not exist or has another type.
template <class T>
void set_options(nb::handle object, const nb::kwargs& values, const char* what) {
  for (auto [name, value] : values) {
    auto text = nb::cast<std::string>(nb::str(name));
    if (!nb::hasattr(nb::type<T>(), name)) {
      const nb::object near =
          nb::module_::import_("difflib").attr("get_close_matches")(name, nb::module_::import_("builtins").attr("dir")(nb::type<T>()), 1);
      const std::string remedy =
          nb::len(near) > 0 ? "did you mean '" + nb::cast<std::string>(near[0]) + "'?" : std::string("dir(quire.") + what + ") lists them";
      throw nb::type_error((text + ": is not an option of " + what + "; " + remedy).c_str());
    }
    try {
      nb::setattr(object, name, value);
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_TypeError)) throw;
      const auto given = nb::cast<std::string>(nb::repr(value));
      const auto kind = nb::cast<std::string>(nb::type_name(nb::getattr(object, name).type()));
      throw nb::type_error(text.append(": is ").append(given).append("; use a value of type ").append(kind).c_str());
    }
  }
}

void bind_engine_config(nb::module_& m);
void bind_sampling(nb::module_& m);
void bind_engine(nb::module_& m);

}  // namespace quire::python
