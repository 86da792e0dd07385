// Binds quire._core, the C++ core for Python.
#include "module.h"

#include <nanobind/stl/string.h>

#include <string>

#include "quire/base/version.h"

namespace nb = nanobind;

NB_MODULE(_core, m) {
  nb::set_leak_warnings(false);  // vLLM's engine ends its process while objects still exist
  m.doc() = "The C++ core: decides which tokens of which requests run in each step, and in which KV-cache blocks.";
  m.attr("__version__") = std::string(quire::kVersion);
  quire::python::bind_specs(m);
  quire::python::bind_config(m);
  quire::python::bind_connector(m);
  quire::python::bind_plan(m);
  quire::python::bind_core(m);
  quire::python::bind_offload(m);
  quire::python::bind_tiered_offload(m);
  quire::python::bind_vllm(m);
}
