// The numbers of an answer: what is not there is 0, and is said to lack from then on.
#include "core/journal/answer_queue.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/journal/blank_calls.h"
#include "core/journal/left_out.h"

namespace quire::test {
namespace {

TEST(AnswerValues, AreReadInOrderAndLackWhereTheyEnd) {
  const std::vector<std::uint64_t> numbers = {5, 2, 7, 8};
  AnswerValues values(numbers);
  EXPECT_EQ(values.next(), 5U);
  const std::span<const std::uint64_t> list = values.list();
  EXPECT_EQ(std::vector<std::uint64_t>(list.begin(), list.end()), (std::vector<std::uint64_t>{7, 8}));
  EXPECT_TRUE(values.empty());
  EXPECT_FALSE(values.lacks());
  EXPECT_EQ(values.next(), 0U);
  EXPECT_TRUE(values.lacks());
}

TEST(AnswerValues, AListThatIsCutIsEmptyAndSoAreAllBehindIt) {
  const std::vector<std::uint64_t> numbers = {3, 7, 8};
  AnswerValues values(numbers);
  EXPECT_TRUE(values.list().empty());
  EXPECT_TRUE(values.lacks());
  EXPECT_EQ(values.next(), 7U);
  EXPECT_TRUE(values.lacks()) << "what comes behind does not mend it";
  EXPECT_TRUE(values.list().empty());
}

// A fork of a parent that is not known is refused, and what is written of it says nothing of its token.
TEST(BlankFork, OfAParentThatNobodyKnowsHasATokenByItsPlace) {
  BlankCalls blank({.words = {1, 2}});
  for (const std::uint32_t num_tokens : {0U, 6U, 7U}) {
    const ForkRequest child = blank.child(nullptr, RequestId{1}, {.id = RequestId{2}, .num_tokens = num_tokens, .next_token = 99});
    EXPECT_EQ(child.next_token, left_out(num_tokens));
    EXPECT_EQ(child.num_tokens, num_tokens);
  }
  EXPECT_FALSE(blank.child(nullptr, RequestId{1}, {.id = RequestId{2}}).next_token.has_value());
}

}  // namespace
}  // namespace quire::test
