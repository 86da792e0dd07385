#pragma once
// Names of offloaded blocks between Python and the core.
#include <nanobind/nanobind.h>

#include <cstring>
#include <span>
#include <vector>

#include "module.h"
#include "quire/offload.h"

namespace quire::python {

using Names = std::vector<nb::bytes>;
using Slots = std::vector<std::uint32_t>;

inline OffloadKey key_of(const nb::bytes& name) {
  OffloadKey key;
  if (name.size() > key.hash.size()) throw nb::value_error("keys: a name has at most 32 bytes");
  std::memcpy(key.hash.data(), name.c_str(), name.size());
  return key;
}

inline std::vector<OffloadKey> keys_of(const Names& names) {
  std::vector<OffloadKey> keys;
  keys.reserve(names.size());
  for (const nb::bytes& name : names) keys.push_back(key_of(name));
  return keys;
}

inline nb::bytes name_of(const OffloadKey& key) {
  return nb::bytes(reinterpret_cast<const char*>(key.hash.data()), key.hash.size());
}

inline Names names_of(std::span<const OffloadKey> keys) {
  Names names;
  names.reserve(keys.size());
  for (const OffloadKey& key : keys) names.push_back(name_of(key));
  return names;
}

// A byte for each.
inline nb::bytes places_of(const std::vector<OffloadPlace>& places) {
  static_assert(sizeof(OffloadPlace) == 1, "bytes of it are what Python gets");
  return nb::bytes(reinterpret_cast<const char*>(places.data()), places.size());
}

constexpr const char* kPlacesDoc =
    "A byte for each key: 0 it is absent, 1 it can be loaded, 2 a store of it is under way, 3 it is coming up, 4 it can be brought up. "
    "Nothing is\ncounted or begun.";

inline Slots numbers_of(std::span<const OffloadSlot> slots) {
  Slots numbers;
  numbers.reserve(slots.size());
  for (const OffloadSlot slot : slots) numbers.push_back(slot.value);
  return numbers;
}

}  // namespace quire::python
