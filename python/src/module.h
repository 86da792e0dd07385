#pragma once
// The parts of the extension module quire._core. Each part binds its own types.
#include <nanobind/nanobind.h>

namespace quire::python {

namespace nb = nanobind;

void bind_specs(nb::module_& m);
void bind_config(nb::module_& m);
void bind_plan(nb::module_& m);
void bind_core(nb::module_& m);
void bind_connector(nb::module_& m);
void bind_offload(nb::module_& m);
void bind_tiered_offload(nb::module_& m);
void bind_vllm(nb::module_& m);

}  // namespace quire::python
