// Tests the numbers of an answer. A missing number reads as 0, and is_short() is true from then on.
#include "core/journal/answer_queue.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/journal/call_redactor.h"
#include "core/journal/left_out.h"

namespace quire::test {
namespace {

TEST(SeamValues, ReadInOrderAndAreShortAfterTheEnd) {
  const std::vector<std::uint64_t> numbers = {5, 2, 7, 8};
  SeamValues values(numbers);
  EXPECT_EQ(values.next(), 5U);
  const std::span<const std::uint64_t> list = values.list();
  EXPECT_EQ(std::vector<std::uint64_t>(list.begin(), list.end()), (std::vector<std::uint64_t>{7, 8}));
  EXPECT_TRUE(values.empty());
  EXPECT_FALSE(values.is_short());
  EXPECT_EQ(values.next(), 0U);
  EXPECT_TRUE(values.is_short());
}

TEST(SeamValues, ACutListIsEmptyAndSoAreAllLaterLists) {
  const std::vector<std::uint64_t> numbers = {3, 7, 8};
  SeamValues values(numbers);
  EXPECT_TRUE(values.list().empty());
  EXPECT_TRUE(values.is_short());
  EXPECT_EQ(values.next(), 7U);
  EXPECT_TRUE(values.is_short()) << "later values do not reset is_short()";
  EXPECT_TRUE(values.list().empty());
}

// The core refuses a fork of an unknown parent. The recorded call must not contain its token.
TEST(BlankFork, ReplacesTheTokenByItsPositionWhenTheParentIsUnknown) {
  CallRedactor blank({.words = {1, 2}});
  for (const std::uint32_t num_tokens : {0U, 6U, 7U}) {
    const ForkRequest child = blank.child(nullptr, RequestId{1}, {.id = RequestId{2}, .num_tokens = num_tokens, .next_token = 99});
    EXPECT_EQ(child.next_token, left_out(num_tokens));
    EXPECT_EQ(child.num_tokens, num_tokens);
  }
  EXPECT_FALSE(blank.child(nullptr, RequestId{1}, {.id = RequestId{2}}).next_token.has_value());
}

}  // namespace
}  // namespace quire::test
