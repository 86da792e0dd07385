#include "capi/handle_table.h"

#include <gtest/gtest.h>

#include <memory>

namespace quire {
namespace {

struct FirstHandle;
struct SecondHandle;

TEST(HandleTable, FindsAnObjectUntilItsHandleIsRemoved) {
  HandleTable<FirstHandle, int> table;
  FirstHandle* const handle = table.add(std::make_shared<int>(7));
  EXPECT_EQ(*table.find(handle), 7);
  EXPECT_EQ(*table.remove(handle), 7);
  EXPECT_EQ(table.find(handle), nullptr);
  EXPECT_EQ(table.remove(handle), nullptr);
  EXPECT_EQ(table.find(nullptr), nullptr);
}

TEST(HandleTable, UsesEachNumberOnceAndInOneTable) {
  HandleTable<FirstHandle, int> first;
  HandleTable<SecondHandle, int> second;
  FirstHandle* const old = first.add(std::make_shared<int>(1));
  (void)first.remove(old);
  EXPECT_NE(first.add(std::make_shared<int>(2)), old);
  EXPECT_EQ(second.find(reinterpret_cast<SecondHandle*>(first.add(std::make_shared<int>(3)))), nullptr);
}

TEST(HandleTable, KeepsAnObjectWhileACallUsesIt) {
  HandleTable<FirstHandle, int> table;
  FirstHandle* const handle = table.add(std::make_shared<int>(7));
  const std::shared_ptr<int> used = table.find(handle);
  (void)table.remove(handle);
  EXPECT_EQ(*used, 7);
}

// Go stops a program that has a number below 4096 in a pointer.
TEST(HandleTable, DoesNotUseSmallNumbers) {
  HandleTable<FirstHandle, int> table;
  EXPECT_GE(reinterpret_cast<std::uintptr_t>(table.add(std::make_shared<int>(1))), 4096U);
}

}  // namespace
}  // namespace quire
