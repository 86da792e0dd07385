#pragma once
// Converts offload keys between Python and the core.
#include <nanobind/nanobind.h>

#include <cstring>
#include <span>
#include <vector>

#include "module.h"
#include "quire/offload.h"

namespace quire::python {

using KeyList = std::vector<nb::bytes>;
using Slots = std::vector<std::uint32_t>;

inline OffloadKey key_of(const nb::bytes& bytes) {
  OffloadKey key;
  if (bytes.size() > key.hash.size()) throw nb::value_error("keys: a key must have at most 32 bytes");
  std::memcpy(key.hash.data(), bytes.c_str(), bytes.size());
  return key;
}

inline std::vector<OffloadKey> keys_of(const KeyList& list) {
  std::vector<OffloadKey> keys;
  keys.reserve(list.size());
  for (const nb::bytes& bytes : list) keys.push_back(key_of(bytes));
  return keys;
}

inline nb::bytes bytes_of_key(const OffloadKey& key) {
  return nb::bytes(reinterpret_cast<const char*>(key.hash.data()), key.hash.size());
}

inline KeyList bytes_of_keys(std::span<const OffloadKey> keys) {
  KeyList list;
  list.reserve(keys.size());
  for (const OffloadKey& key : keys) list.push_back(bytes_of_key(key));
  return list;
}

// Returns one byte per key.
inline nb::bytes states_as_bytes(const std::vector<OffloadState>& states) {
  static_assert(sizeof(OffloadState) == 1, "Python receives each value as one byte");
  return nb::bytes(reinterpret_cast<const char*>(states.data()), states.size());
}

constexpr const char* kFindDoc =
    "Returns the state of each key as one byte: 0 absent, 1 can be loaded, 2 its store is in flight, 3 is being\n"
    "loaded from the tier below, 4 is only in the tier below. Changes and counts nothing.";

inline Slots slot_indices(std::span<const OffloadSlot> slots) {
  Slots indices;
  indices.reserve(slots.size());
  for (const OffloadSlot slot : slots) indices.push_back(slot.value);
  return indices;
}

}  // namespace quire::python
