// Evicts the block that was inserted first, regardless of its use. The policy has the name fifo, for eviction_policy of
// OffloadingConnector and for --kv-disk-policy.
#include <list>

#include "example_connector.h"

namespace examples {
namespace {

class FifoPolicy final : public quire::EvictionPolicy {
 public:
  explicit FifoPolicy(std::uint32_t num_slots) : places_(num_slots), is_evictable_(num_slots) {}

  void insert(std::uint32_t slot) override { come(slot, order_.end()); }
  void insert_oldest(std::uint32_t slot) override { come(slot, order_.begin()); }
  void replace(std::uint32_t old, std::uint32_t slot) override {
    const auto next = std::next(places_[old]);
    remove(old);
    come(slot, next);
  }
  void remove(std::uint32_t slot) override { order_.erase(places_[slot]); }
  void touch(std::uint32_t /*slot*/, bool /*ready*/) override {}
  void set_evictable(std::uint32_t slot, bool evictable) override { is_evictable_[slot] = evictable; }
  bool evict(std::uint32_t count, std::span<const quire::OffloadKey> /*incoming*/, std::vector<std::uint32_t>& slots) override {
    std::vector<std::uint32_t> found;
    for (auto at = order_.begin(); at != order_.end() && found.size() < count; ++at)
      if (is_evictable_[*at]) found.push_back(*at);
    if (found.size() < count) return false;
    for (const std::uint32_t slot : found) remove(slot);
    slots.insert(slots.end(), found.begin(), found.end());
    return true;
  }

  bool is_evictable(std::uint32_t slot) const override { return is_evictable_[slot]; }
  std::uint32_t num_resident() const override { return static_cast<std::uint32_t>(order_.size()); }

 private:
  void come(std::uint32_t slot, std::list<std::uint32_t>::iterator before) {
    places_[slot] = order_.insert(before, slot);
    is_evictable_[slot] = false;
  }

  std::list<std::uint32_t> order_;
  std::vector<std::list<std::uint32_t>::iterator> places_;  // by slot
  std::vector<bool> is_evictable_;                          // by slot
};

}  // namespace

std::unique_ptr<quire::EvictionPolicy> make_fifo(std::uint32_t num_slots, const quire::SlotKeys& /*keys*/) {
  return std::make_unique<FifoPolicy>(num_slots);
}

}  // namespace examples
