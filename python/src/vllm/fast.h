#pragma once
// Access to Python objects through the C API, without argument conversion, for code that handles every running request in each step.
#include <nanobind/nanobind.h>

#include <cstdint>
#include <span>

#include "quire/base/ids.h"

namespace quire::python::fast {

namespace nb = nanobind;

// Takes over the reference. Throws the current Python exception if `object` is null.
inline nb::object steal(PyObject* object) {
  if (object == nullptr) throw nb::python_error();
  return nb::steal(object);
}

inline void check(int status) {
  if (status < 0) throw nb::python_error();
}

inline PyObject* require_non_null(PyObject* object) {
  if (object == nullptr) throw nb::python_error();
  return object;
}

// Appends the object and takes over its reference.
inline void append(nb::handle list, PyObject* object) {
  const nb::object item = steal(object);
  check(PyList_Append(list.ptr(), item.ptr()));
}

inline void append(nb::handle list, std::int64_t value) {
  append(list, PyLong_FromLongLong(value));
}

inline void set(nb::handle dict, nb::handle key, nb::handle value) {
  check(PyDict_SetItem(dict.ptr(), key.ptr(), value.ptr()));
}

template <class T>
PyObject* number(T value) {
  return PyLong_FromLongLong(static_cast<long long>(value));
}

inline PyObject* number(BlockId id) {
  return PyLong_FromUnsignedLong(id.value);
}

template <class T>
nb::object list(std::span<const T> values) {
  nb::object out = steal(PyList_New(static_cast<Py_ssize_t>(values.size())));
  for (std::size_t i = 0; i < values.size(); ++i)
    PyList_SET_ITEM(out.ptr(), static_cast<Py_ssize_t>(i), require_non_null(number(values[i])));
  return out;
}

template <class T>
void extend(nb::handle list, std::span<const T> values) {
  for (const T& value : values) append(list, number(value));
}

// Calls `out` with each item of the list as a token.
template <class Out>
void append_tokens(nb::handle list, Out&& out) {
  if (!PyList_Check(list.ptr())) throw nb::type_error("sampled_token_ids: every entry must be a list of int");
  const Py_ssize_t size = PyList_GET_SIZE(list.ptr());
  for (Py_ssize_t i = 0; i < size; ++i) {
    const long value = PyLong_AsLong(PyList_GET_ITEM(list.ptr(), i));
    if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    out(static_cast<TokenId>(value));
  }
}

inline nb::object interned(const char* text) {
  return steal(PyUnicode_InternFromString(text));
}

}  // namespace quire::python::fast
