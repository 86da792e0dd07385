#pragma once
// Drives a ledger with numbers as keys.
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "core/offload/naive_offload.h"
#include "core/offload/offload_ledger.h"

namespace quire::test {

using Numbers = std::vector<int>;

inline OffloadKey key(int number) {
  OffloadKey key;
  std::memcpy(key.hash.data(), &number, sizeof number);
  return key;
}

inline int number(const OffloadKey& key) {
  int number = 0;
  std::memcpy(&number, key.hash.data(), sizeof number);
  return number;
}

inline std::vector<OffloadKey> keys(const Numbers& numbers) {
  std::vector<OffloadKey> keys;
  for (int number : numbers) keys.push_back(key(number));
  return keys;
}

inline Numbers numbers(std::span<const OffloadKey> keys) {
  Numbers numbers;
  for (const OffloadKey& key : keys) numbers.push_back(number(key));
  return numbers;
}

inline Numbers numbers(std::span<const OffloadSlot> slots) {
  Numbers numbers;
  for (OffloadSlot slot : slots) numbers.push_back(static_cast<int>(slot.value));
  return numbers;
}

// Returns `first`, first + 1 .. `last`.
inline Numbers range(int first, int last) {
  Numbers numbers;
  for (int number = first; number <= last; ++number) numbers.push_back(number);
  return numbers;
}

class NumberLedger {
 public:
  explicit NumberLedger(const OffloadOptions& options) : ledger_(std::move(OffloadLedger::create(options).value())) {}
  NumberLedger(OffloadPolicy policy, std::int64_t num_slots) : NumberLedger(OffloadOptions{.num_slots = num_slots, .policy = policy}) {}

  OffloadLedger& operator*() { return *ledger_; }
  OffloadLedger* operator->() { return ledger_.get(); }

  int lookup(const Numbers& numbers) { return static_cast<int>(ledger_->lookup(keys(numbers))); }
  void touch(const Numbers& numbers) { ledger_->touch(keys(numbers)); }
  std::optional<Numbers> load(const Numbers& which) {
    const auto slots = ledger_->prepare_load(keys(which));
    return slots ? std::optional(numbers(*slots)) : std::nullopt;
  }
  bool complete_load(const Numbers& numbers) { return ledger_->complete_load(keys(numbers)).has_value(); }
  std::optional<NaiveStore> store(const Numbers& which) {
    const auto store = ledger_->prepare_store(keys(which));
    return store ? std::optional(NaiveStore{numbers(store->keys), numbers(store->slots), numbers(store->evicted)}) : std::nullopt;
  }
  void complete_store(const Numbers& numbers, bool success = true) { ledger_->complete_store(keys(numbers), success); }
  // Stores the keys and completes the store.
  void put(const Numbers& numbers) {
    QUIRE_CHECK(store(numbers).has_value(), "the keys find no room");
    complete_store(numbers);
  }
  std::vector<NaiveEvent> events() const {
    std::vector<NaiveEvent> events;
    for (std::size_t i = 0; i < ledger_->num_events(); ++i) events.push_back({numbers(ledger_->event(i).keys), ledger_->event(i).removed});
    return events;
  }
  // lru: all; arc: t1, t2, b1, b2.
  std::vector<Numbers> lists() const {
    std::vector<Numbers> lists;
    for (const auto& list : ledger_->snapshot().lists) lists.push_back(numbers(list));
    return lists;
  }
  double target() const { return ledger_->snapshot().target_t1_size; }

 private:
  std::unique_ptr<OffloadLedger> ledger_;
};

}  // namespace quire::test
