// Plays bytes as calls to the ledger of a lower tier and to the naive manager. Answers and order must be equal.
#include <cstddef>
#include <cstdint>

#include "core/offload/offload_support.h"

namespace quire::test {
namespace {

class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  [[nodiscard]] bool empty() const { return size_ == 0; }
  int next() { return size_ == 0 ? 0 : (--size_, *data_++); }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

Numbers draw_keys(Bytes& bytes, bool may_repeat) {
  const int first = bytes.next() % 40;
  Numbers numbers = range(first, first + bytes.next() % 8);
  if (may_repeat && first % 8 == 7) numbers.push_back(first);
  return numbers;
}

void load(NumberLedger& ledger, NaiveOffload& model, const Numbers& numbers) {
  const auto slots = ledger.load(numbers);
  QUIRE_CHECK(slots.has_value() == model.can_load(numbers));
  QUIRE_CHECK(!slots || *slots == model.load(numbers));
}

void complete_load(NumberLedger& ledger, NaiveOffload& model, const Numbers& numbers) {
  const bool can = model.can_complete_load(numbers);
  QUIRE_CHECK(ledger.complete_load(numbers) == can);
  if (can) model.complete_load(numbers);
}

void call(NumberLedger& ledger, NaiveOffload& model, int verb, const Numbers& numbers) {
  if (verb == 0) {
    QUIRE_CHECK(ledger.lookup(numbers) == model.lookup(numbers));
  } else if (verb == 1) {
    ledger.touch(numbers);
    ledger->use(keys(numbers));
    model.touch(numbers);
    model.use(numbers);
  } else if (verb == 2) {
    load(ledger, model, numbers);
  } else if (verb == 3) {
    complete_load(ledger, model, numbers);
  } else if (verb == 4) {
    QUIRE_CHECK(ledger.store(numbers) == model.store(numbers));
  } else {
    ledger.complete_store(numbers, verb < 7);
    model.complete_store(numbers, verb < 7);
  }
}

void play(Bytes bytes) {
  const int kind = bytes.next();
  const auto policy = static_cast<OffloadPolicy>(kind % 2 + kind / 8 % 2 * 2);
  const bool is_vllms = policy == OffloadPolicy::lru || policy == OffloadPolicy::arc;
  const int threshold = kind / 2 % 4;
  const int num_slots = bytes.next() % 16;
  NumberLedger ledger(OffloadOptions{
      .num_slots = num_slots, .policy = policy, .store_threshold = threshold, .max_tracked_keys = 20, .enable_events = true});
  NaiveOffload model(policy, num_slots, threshold, 20);
  while (!bytes.empty()) {
    const int verb = bytes.next() % 8;
    call(ledger, model, verb, draw_keys(bytes, is_vllms));
    QUIRE_CHECK(ledger.lists() == model.lists());
    QUIRE_CHECK(ledger.target() == model.target_t1_size());
    ledger->check_invariants();
  }
  QUIRE_CHECK(ledger.events() == model.events);
}

}  // namespace
}  // namespace quire::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  quire::test::play({data, size < 3000 ? size : 3000});
  return 0;
}
