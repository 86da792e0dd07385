// A key is in no queue or in one of: the small queue, the main queue, the ghosts.
//   insert        no queue -> small; ghosts -> main
//   evict         the oldest of small: used more than once -> main, else -> ghosts
//                 the oldest of main: used -> the newest of main with its count of uses reduced by one, else -> no queue
//                 the oldest of full ghosts -> no queue
//   remove        small, main -> no queue
#include "core/offload/s3fifo_policy.h"

#include <algorithm>

#include "base/check.h"

namespace quire {
namespace {

// Sizes of the S3-FIFO paper: the small queue has a tenth of the slots, and uses are counted with two bits (0 to 3).
constexpr std::uint32_t kSmallShare = 10;
constexpr std::uint8_t kMaxUses = 3;

}  // namespace

S3FifoPolicy::S3FifoPolicy(std::uint32_t num_slots, const KeyIndex& keys)
    : small_size_(std::max(1U, num_slots / kSmallShare)),
      keys_(keys),
      queues_(num_slots),
      num_uses_(num_slots),
      ghosts_(std::max(1U, num_slots - std::min(num_slots, small_size_))) {}

void S3FifoPolicy::insert(std::uint32_t slot) {
  queues_.insert(slot);
  num_uses_[slot] = 0;
}

void S3FifoPolicy::insert_oldest(std::uint32_t slot) {
  ghosts_.forget(keys_.key_of(slot));
  queues_.insert_oldest(kSmall, slot);
  num_uses_[slot] = 0;
}

void S3FifoPolicy::replace(std::uint32_t old, std::uint32_t slot) {
  queues_.replace(old, slot);
  num_uses_[slot] = num_uses_[old];
}

void S3FifoPolicy::use(std::uint32_t slot) {
  QUIRE_CHECK(slot < num_uses_.size(), "the slot is in the tier");
  num_uses_[slot] = std::min<std::uint8_t>(num_uses_[slot] + 1, kMaxUses);
}

bool S3FifoPolicy::evict(std::uint32_t count, std::span<const OffloadKey> incoming, std::vector<std::uint32_t>& slots) {
  QUIRE_CHECK(count <= incoming.size(), "no more slots are evicted than keys are added");
  if (count > queues_.num_evictable()) return false;
  for (std::size_t i = 0; i < incoming.size(); ++i) {
    const bool is_back = ghosts_.find(incoming[i]) != kNoIndex;
    ghosts_.forget(incoming[i]);
    if (i + count >= incoming.size()) slots.push_back(take_victim());
    queues_.announce(is_back ? kMain : kSmall);
  }
  return true;
}

void S3FifoPolicy::append_next_victims(std::size_t most, std::vector<std::uint32_t>& slots) const {
  queues_.append_oldest(queues_.size(kSmall) >= small_size_ ? kSmall : kMain, most, slots);
}

std::uint32_t S3FifoPolicy::take_victim() {
  // The loop ends, because each move reduces the slot's count of uses and at least one slot is evictable.
  for (;;) {
    const bool prefers_small = queues_.size(kSmall) >= small_size_;
    const bool from_small = queues_.oldest_evictable(prefers_small ? kSmall : kMain) == kNoIndex ? !prefers_small : prefers_small;
    const std::uint32_t slot = queues_.oldest_evictable(from_small ? kSmall : kMain);
    QUIRE_CHECK(slot != kNoIndex, "there is an evictable slot");
    if (from_small && num_uses_[slot] > 1) {
      num_uses_[slot] = 0;
      queues_.move(slot, kMain);
    } else if (!from_small && num_uses_[slot] > 0) {
      --num_uses_[slot];
      queues_.move(slot, kMain);
    } else {
      queues_.remove(slot);
      if (from_small) ghosts_.push(kGhosts, keys_.key_of(slot));
      return slot;
    }
  }
}

PolicySnapshot S3FifoPolicy::snapshot() const {
  PolicySnapshot snapshot;
  for (const SlotQueues::Queue queue : {kSmall, kMain}) {
    auto& keys = snapshot.lists.emplace_back();
    queues_.all(queue).for_each([&](std::uint32_t slot) { keys.push_back(keys_.key_of(slot)); });
  }
  snapshot.lists.push_back(ghosts_.keys(kGhosts));
  return snapshot;
}

void S3FifoPolicy::check_invariants() const {
  queues_.check_invariants();
  ghosts_.check_invariants(keys_);
}

}  // namespace quire
