#pragma once
// Converts plans and outcomes to Python objects, which are copies and stay valid.
#include <nanobind/nanobind.h>

#include "quire/core.h"

namespace quire::python {

namespace nb = nanobind;

// Returns a plan as a quire.Plan.
nb::object to_python(const StepPlan& plan);
// Returns an outcome as a quire.Outcome.
nb::object to_python(const StepOutcome& outcome);
// Returns a request as a quire.RequestInfo.
nb::object to_python(const RequestView& view);
nb::object to_python(const CoreSnapshot& snapshot);

template <class Range>
nb::list list_of(const Range& values) {
  nb::list out;
  for (const auto& value : values) out.append(nb::cast(value));
  return out;
}

template <class Range>
nb::list list_of_ids(const Range& ids) {
  nb::list out;
  for (const auto& id : ids) out.append(nb::cast(id.value));
  return out;
}

}  // namespace quire::python
