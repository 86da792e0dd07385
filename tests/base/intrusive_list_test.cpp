#include "base/intrusive_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "base/random.h"

namespace quire {
namespace {

struct Item {
  int value = 0;
  ListHook<Item> hook;
};
using List = IntrusiveList<Item, &Item::hook>;

std::vector<int> values(const List& list) {
  std::vector<int> result;
  for (const Item* item = list.front(); item != nullptr; item = List::next(*item)) result.push_back(item->value);
  return result;
}

TEST(IntrusiveList, BehavesLikeADequeUnderRandomOperations) {
  Random random(11);
  std::vector<Item> items(40);
  for (int i = 0; i < 40; ++i) items[static_cast<std::size_t>(i)].value = i;
  List list;
  std::deque<int> model;
  for (int step = 0; step < 20000; ++step) {
    Item& item = items[random.below(items.size())];
    const auto found = std::ranges::find(model, item.value);
    ASSERT_EQ(List::linked(item), found != model.end());
    if (found != model.end()) {
      list.remove(item);
      model.erase(found);
    } else if (random.chance(0.5)) {
      list.push_back(item);
      model.push_back(item.value);
    } else {
      list.push_front(item);
      model.push_front(item.value);
    }
    ASSERT_EQ(values(list), std::vector<int>(model.begin(), model.end()));
    ASSERT_EQ(list.size(), model.size());
    ASSERT_EQ(list.empty(), model.empty());
    if (!model.empty()) {
      ASSERT_EQ(list.front()->value, model.front());
      ASSERT_EQ(list.back()->value, model.back());
    }
  }
}

TEST(IntrusiveListDeathTest, LinkingOrRemovingAnElementTwiceAbortsTheProgram) {
  Item item;
  List list;
  list.push_back(item);
  EXPECT_DEATH(list.push_back(item), "the element is in no list");
  list.remove(item);
  EXPECT_DEATH(list.remove(item), "the element is in the list");
}

}  // namespace
}  // namespace quire
