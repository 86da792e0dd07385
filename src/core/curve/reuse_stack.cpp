// Counts how many sampled blocks were released after a given one. Slots with ascending numbers represent the order: a released hash takes
// the next slot, and the number of later releases is the number of occupied slots after it. Called on the core's thread for each sampled
// block of a request, when the request is admitted and when it ends. It allocates nothing.
#include "core/curve/reuse_stack.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace quire {

ReuseStack::ReuseStack(std::uint32_t max_tracked, double max_depth, double rate)
    : max_depth_(max_depth),
      entries_(max_tracked),
      buckets_(std::bit_ceil(std::max(max_tracked, 2U)), kNone),
      shift_(64U - static_cast<unsigned>(std::countr_zero(buckets_.size()))) {
  QUIRE_CHECK(max_tracked > 0 && rate > 0.0 && rate <= 1.0, "there is room for a hash, and the rate is above 0 and at most 1");
  const std::size_t num_groups = (std::size_t{2} * max_tracked + kGroupSlots - 1) / kGroupSlots;
  slots_.resize(num_groups * kGroupSlots);
  occupied_.resize(num_groups * kGroupSlots / kWordBits);
  per_group_.resize(num_groups);
  while (rate_ > rate) {
    rate_ *= 0.5;
    threshold_ >>= 1U;
  }
  clear();
}

std::uint64_t ReuseStack::num_bytes() const {
  return sizeof(Entry) * entries_.size() + sizeof(std::uint32_t) * (buckets_.size() + slots_.size() + per_group_.size()) +
         sizeof(std::uint64_t) * occupied_.size();
}

void ReuseStack::clear() {
  std::ranges::fill(buckets_, kNone);
  std::ranges::fill(occupied_, 0);
  std::ranges::fill(per_group_, 0);
  unused_ = kNone;
  for (auto place = static_cast<std::uint32_t>(entries_.size()); place-- > 0;) {
    entries_[place] = {.next = unused_};
    unused_ = place;
  }
  num_tracked_ = num_released_ = next_slot_ = oldest_word_ = 0;
  asked_slot_ = kNone;
}

void ReuseStack::check_invariants() const {
  std::uint32_t num_chained = 0, num_unused = 0, num_occupied = 0;
  for (std::uint32_t head = 0; head < buckets_.size(); ++head) {
    for (std::uint32_t place = buckets_[head]; place != kNone; place = entries_[place].next) {
      const Entry& entry = entries_[place];
      QUIRE_CHECK(bucket(entry.key) == head && samples(entry.key), "a hash is sampled and in the chain of its bucket");
      QUIRE_CHECK(entry.slot == kNone || (entry.slot < next_slot_ && slots_[entry.slot] == place), "a released hash has a private slot");
      QUIRE_CHECK(++num_chained <= num_tracked_, "chains contain only tracked hashes");
    }
  }
  for (std::uint32_t place = unused_; place != kNone; place = entries_[place].next)
    QUIRE_CHECK(++num_unused <= entries_.size(), "an unused entry is in the free list once");
  QUIRE_CHECK(num_chained == num_tracked_ && num_chained + num_unused == entries_.size(), "each entry is tracked or unused");
  for (std::uint32_t word = 0; word < occupied_.size(); ++word) {
    QUIRE_CHECK(word >= oldest_word_ || occupied_[word] == 0, "no slot before the oldest one is occupied");
    num_occupied += static_cast<std::uint32_t>(std::popcount(occupied_[word]));
  }
  QUIRE_CHECK(num_occupied == num_released_ && num_released_ <= num_tracked_, "num_released_ equals the number of occupied slots");
  QUIRE_CHECK(std::accumulate(per_group_.begin(), per_group_.end(), 0U) == num_occupied,
              "the counts of the slot groups add up to the occupied slots");
}

std::uint32_t ReuseStack::entry_of(std::uint64_t key) const {
  std::uint32_t place = buckets_[bucket(key)];
  while (place != kNone && entries_[place].key != key) place = entries_[place].next;
  return place;
}

ReuseStack::Found ReuseStack::find(std::uint64_t key) {
  const std::uint32_t place = entry_of(key);
  if (place == kNone) return {};
  const std::uint32_t slot = entries_[place].slot;
  if (slot == kNone) return {.state = State::held};
  asked_after_ = asked_slot_ != kNone && slot + 1 == asked_slot_ ? asked_after_ + 1 : num_after_slot(slot);
  asked_slot_ = slot;
  return {.state = State::released, .num_after = asked_after_ / rate_};
}

std::uint32_t ReuseStack::num_after_slot(std::uint32_t slot) const {
  QUIRE_CHECK(slot < next_slot_, "the slot has been assigned");
  const std::uint32_t group = slot / kGroupSlots;
  const std::uint32_t word = slot / kWordBits;
  std::uint32_t count =
      std::accumulate(per_group_.begin() + group + 1, per_group_.begin() + (next_slot_ + kGroupSlots - 1) / kGroupSlots, 0U);
  for (std::uint32_t w = word + 1; w < (group + 1) * (kGroupSlots / kWordBits); ++w)
    count += static_cast<std::uint32_t>(std::popcount(occupied_[w]));
  // Shifts twice, because a shift by 64 would be undefined.
  return count + static_cast<std::uint32_t>(std::popcount(occupied_[word] >> (slot % kWordBits) >> 1U));
}

void ReuseStack::hold(std::uint64_t key) {
  const std::uint32_t place = entry_of(key);
  if (place != kNone && entries_[place].slot != kNone) vacate(place);
}

void ReuseStack::release(std::uint64_t key) {
  std::uint32_t place = entry_of(key);
  if (place == kNone) place = take_entry(key);
  if (place == kNone) return;
  if (entries_[place].slot != kNone) vacate(place);
  if (next_slot_ == slots_.size()) renumber();
  occupy(place);
  while (num_released_ > max_depth_ * rate_ + 1.0) drop_oldest();
}

void ReuseStack::forget(std::uint64_t key) {
  if (const std::uint32_t place = entry_of(key); place != kNone) remove(place);
}

void ReuseStack::occupy(std::uint32_t place) {
  QUIRE_CHECK(next_slot_ < slots_.size(), "slots are renumbered before they run out");
  const std::uint32_t slot = next_slot_++;
  entries_[place].slot = slot;
  slots_[slot] = place;
  occupied_[slot / kWordBits] |= std::uint64_t{1} << (slot % kWordBits);
  ++per_group_[slot / kGroupSlots];
  ++num_released_;
  asked_slot_ = kNone;
}

void ReuseStack::vacate(std::uint32_t place) {
  const std::uint32_t slot = entries_[place].slot;
  QUIRE_CHECK(slot < next_slot_ && slots_[slot] == place && num_released_ > 0, "the slot of a hash refers back to its entry");
  occupied_[slot / kWordBits] &= ~(std::uint64_t{1} << (slot % kWordBits));
  --per_group_[slot / kGroupSlots];
  --num_released_;
  entries_[place].slot = kNone;
  asked_slot_ = kNone;
}

std::uint32_t ReuseStack::take_entry(std::uint64_t key) {
  while (unused_ == kNone) {
    halve_rate();
    if (!samples(key)) return kNone;
  }
  const std::uint32_t place = unused_;
  unused_ = entries_[place].next;
  std::uint32_t& head = buckets_[bucket(key)];
  entries_[place] = {.key = key, .next = head};
  head = place;
  QUIRE_CHECK(num_tracked_ < entries_.size(), "unused entries are not counted as tracked");
  ++num_tracked_;
  return place;
}

void ReuseStack::remove(std::uint32_t place) {
  if (entries_[place].slot != kNone) vacate(place);
  std::uint32_t* from = &buckets_[bucket(entries_[place].key)];
  while (*from != place) {
    QUIRE_CHECK(*from != kNone, "a hash is in the chain of its bucket");
    from = &entries_[*from].next;
  }
  *from = entries_[place].next;
  entries_[place].next = unused_;
  unused_ = place;
  QUIRE_CHECK(num_tracked_ > 0, "a removed hash was tracked");
  --num_tracked_;
}

void ReuseStack::drop_oldest() {
  QUIRE_CHECK(num_released_ > 0, "there is a released hash");
  while (occupied_[oldest_word_] == 0) {
    ++oldest_word_;
    QUIRE_CHECK(oldest_word_ < occupied_.size(), "the oldest slot is not before the last known oldest slot");
  }
  remove(slots_[oldest_word_ * kWordBits + static_cast<std::uint32_t>(std::countr_zero(occupied_[oldest_word_]))]);
}

void ReuseStack::halve_rate() {
  rate_ *= 0.5;
  threshold_ >>= 1U;
  for (std::uint32_t& head : buckets_) {
    for (std::uint32_t place = head; place != kNone;) {
      const std::uint32_t next = entries_[place].next;
      if (!samples(entries_[place].key)) remove(place);
      place = next;
    }
  }
}

void ReuseStack::renumber() {
  std::uint32_t to = 0;
  for (std::uint32_t from = 0; from < next_slot_; ++from) {
    if ((occupied_[from / kWordBits] >> (from % kWordBits) & 1U) == 0) continue;
    slots_[to] = slots_[from];
    entries_[slots_[to]].slot = to;
    ++to;
  }
  QUIRE_CHECK(to == num_released_ && to < slots_.size(), "at least half of the slots were vacant");
  next_slot_ = to;
  oldest_word_ = 0;
  asked_slot_ = kNone;
  for (std::uint32_t word = 0; word < occupied_.size(); ++word) {
    const std::uint32_t first = word * kWordBits;
    occupied_[word] = to >= first + kWordBits ? ~std::uint64_t{0} : to > first ? (std::uint64_t{1} << (to % kWordBits)) - 1 : 0;
  }
  for (std::uint32_t group = 0; group < per_group_.size(); ++group)
    per_group_[group] = std::min(kGroupSlots, to - std::min(to, group * kGroupSlots));
}

}  // namespace quire
