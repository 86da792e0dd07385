#pragma once
// Tier slots that get a new number whenever a key is assigned to them, like the slots of a disk tier.
#include <cstdint>
#include <map>

#include "core/connect/tier_slots.h"

namespace quire::test {

class LastingPlaces final : public TierSlots {
 public:
  std::uint64_t assign(std::uint64_t place, const OffloadKey& key) override {
    names_[place] = key;
    ++generations_[place];
    return number(place);
  }
  [[nodiscard]] std::uint64_t number(std::uint64_t place) { return std::uint64_t{generations_[place]} << 32U | place; }
  [[nodiscard]] std::uint32_t generation(std::uint64_t place) { return generations_[place]; }
  [[nodiscard]] bool is_current(std::uint64_t number) { return generations_[static_cast<std::uint32_t>(number)] == number >> 32U; }
  [[nodiscard]] const OffloadKey& name(std::uint64_t place) const { return names_.at(place); }

 private:
  std::map<std::uint64_t, OffloadKey> names_;
  std::map<std::uint64_t, std::uint32_t> generations_;
};

}  // namespace quire::test
