#pragma once
// Which place holds which name, least recently used first to go: for users of a store that have no ledger of their own. Places are given
// out once they are known, so a tier whose table is still being read overwrites nothing that it would find. One thread.
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/tier/disk_store.h"

namespace quire {

class PlaceIndex {
 public:
  // What a store has found of places [known, num_known), in any order. The older of two places with one name is free, and so are all that
  // hold nothing; what was found is older than what was added since.
  void add_restored(std::uint32_t num_known, std::span<const RestoredBlock> blocks);

  // Counts as a use.
  std::optional<std::uint32_t> find(const OffloadKey& name);
  // Do not.
  [[nodiscard]] std::optional<std::uint32_t> place_of(const OffloadKey& name) const;
  [[nodiscard]] bool contains(const OffloadKey& name) const { return names_.contains(name); }
  // A place for a name that has none: a free one, else that of the least recently used name, which is forgotten. nullopt: none is known
  // yet, or all are being written. The name is found after stored().
  std::optional<std::uint32_t> take();
  void stored(const OffloadKey& name, std::uint32_t place);
  // What take() gave and was not stored, or a name whose block was refused.
  void give_back(std::uint32_t place) { free_.push_back(place); }
  void forget(const OffloadKey& name);

  [[nodiscard]] std::size_t size() const { return names_.size(); }

 private:
  struct Held {
    std::uint32_t place;
    std::uint64_t used;
  };
  struct NameHash {
    std::size_t operator()(const OffloadKey& name) const { return name.prefix() ^ name.group; }
  };

  std::unordered_map<OffloadKey, Held, NameHash> names_;
  std::map<std::uint64_t, OffloadKey> by_use_;  // oldest first
  std::vector<std::uint32_t> free_;
  std::uint32_t num_known_ = 0;
  std::uint64_t clock_ = std::uint64_t{1} << 63U;  // above the sequence number of any block that was found
};

}  // namespace quire
