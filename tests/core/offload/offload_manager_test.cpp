// The facade returns the ledger's results.
#include "quire/offload_manager.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "core/offload/offload_support.h"

namespace quire::test {
namespace {

TEST(OffloadManager, AnswersLikeTheLedger) {
  for (const OffloadPolicy policy : {OffloadPolicy::lru, OffloadPolicy::arc, OffloadPolicy::arc_paper, OffloadPolicy::s3fifo}) {
    const OffloadOptions options{
        .num_slots = 12, .policy = policy, .store_threshold = policy == OffloadPolicy::lru ? 2 : 0, .enable_events = true};
    const auto manager = OffloadManager::create(options).value();
    NumberLedger ledger(options);
    Random random(21);
    std::vector<std::vector<OffloadKey>> loading;
    for (int call = 0; call < 2000; ++call) {
      const int first = static_cast<int>(random.below(30));
      const std::vector<OffloadKey> some = keys(range(first, first + static_cast<int>(random.below(4))));
      ASSERT_EQ(manager->lookup(some), ledger->lookup(some));
      manager->touch(some);
      ledger->touch(some);
      if (random.chance(0.3)) manager->use(some), ledger->use(some);
      if (random.chance(0.3)) {
        const auto slots = manager->prepare_load(some);
        const auto wanted = ledger->prepare_load(some);
        ASSERT_EQ(slots.has_value(), wanted.has_value());
        if (slots) ASSERT_EQ(numbers(*slots), numbers(*wanted));
        if (slots) loading.push_back(some);
      }
      if (!loading.empty() && random.chance(0.5)) {
        ASSERT_EQ(manager->complete_load(loading.back()).has_value(), ledger->complete_load(loading.back()).has_value());
        loading.pop_back();
      }
      if (random.chance(0.05) && !some.empty()) ASSERT_EQ(manager->discard(some[0]), ledger->discard(some[0]));
      const std::vector<OffloadState> places = manager->find(some);
      for (std::size_t i = 0; i < some.size(); ++i) {
        const auto count = ledger->ref_count(some[i]);
        ASSERT_EQ(places[i], !count ? OffloadState::absent : *count < 0 ? OffloadState::storing : OffloadState::stored);
      }
      const auto store = manager->prepare_store(some);
      const auto wanted = ledger->prepare_store(some);
      ASSERT_EQ(store.has_value(), wanted.has_value());
      if (store) {
        ASSERT_EQ(numbers(store->keys), numbers(wanted->keys));
        ASSERT_EQ(numbers(store->slots), numbers(wanted->slots));
        ASSERT_EQ(numbers(store->evicted), numbers(wanted->evicted));
        const bool success = random.chance(0.9);
        manager->complete_store(some, success);
        ledger->complete_store(some, success);
      }
      ASSERT_EQ(manager->order().lists, ledger->snapshot().lists);
      ASSERT_EQ(manager->order().target_t1_size, ledger->snapshot().target_t1_size);
      ASSERT_EQ(manager->num_free(), ledger->num_free());
      ASSERT_EQ(manager->num_events(), ledger->num_events());
      manager->check_invariants();
    }
    const std::size_t num_events = manager->num_events();
    ASSERT_GT(num_events, 100U);
    EXPECT_EQ(numbers(manager->event(num_events - 1).keys), numbers(ledger->event(num_events - 1).keys));
    EXPECT_EQ(manager->event(num_events - 1).removed, ledger->event(num_events - 1).removed);
    EXPECT_EQ(manager->counted().size(), options.store_threshold == 0 ? 0U : ledger->filter()->snapshot().size());
    manager->clear_events();
    EXPECT_EQ(manager->num_events(), 0U);
    EXPECT_EQ(manager->num_slots(), 12U);
  }
}

TEST(OffloadManager, RefusesOptionsThatItCannotServe) {
  EXPECT_EQ(OffloadManager::create({.num_slots = -1}).error().field, "num_slots");
  EXPECT_EQ(OffloadManager::create({.num_slots = 1, .restores = true}).error().field, "restores");
}

}  // namespace
}  // namespace quire::test
