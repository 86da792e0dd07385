#pragma once
// Raises errors of the core as Python exceptions.
#include <nanobind/nanobind.h>

#include <cmath>
#include <string>
#include <utility>

#include "quire/base/error.h"

namespace quire::python {

// Raises KeyError for an unknown id, NotImplementedError for a feature that this build does not have, and ValueError for other errors. The
// message names the field and the remedy.
[[noreturn]] inline void raise(const Error& error) {
  const std::string text = error.to_string();
  switch (error.code) {
    case ErrorCode::not_found:
      throw nanobind::key_error(text.c_str());
    case ErrorCode::unsupported:
      PyErr_SetString(PyExc_NotImplementedError, text.c_str());
      throw nanobind::python_error();
    default:
      throw nanobind::value_error(text.c_str());
  }
}

[[noreturn]] inline void raise_state(const char* text) {
  PyErr_SetString(PyExc_RuntimeError, text);
  throw nanobind::python_error();
}

template <class T>
T value_or_raise(Result<T> result) {
  if (!result) raise(result.error());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

}  // namespace quire::python
