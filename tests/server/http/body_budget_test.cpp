// Tests the memory budget of request bodies, the pace of a body, and which slow body is cut.
#include "server/http/body_budget.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace quire {
namespace {

TEST(BodyBudgets, GiveExactlyTheirBytes) {
  constexpr std::uint64_t kSmall = BodyBudget::kSmallBodyBytes;
  BodyBudget budget(kSmall * 8);
  {
    BodyBudget::Lease large(budget);
    EXPECT_FALSE(large.grow_to(kSmall * 7 + 1)) << "an eighth is reserved for small bodies";
    EXPECT_TRUE(large.grow_to(kSmall * 7));
    BodyBudget::Lease small(budget), none(budget);
    EXPECT_TRUE(small.grow_to(kSmall));
    EXPECT_FALSE(none.grow_to(1));
    EXPECT_TRUE(none.grow_to(0));
    EXPECT_EQ(budget.used_bytes(), 8 * kSmall);
    small.release();
    EXPECT_EQ(small.bytes(), 0U);
    EXPECT_EQ(budget.used_bytes(), 7 * kSmall);
  }
  EXPECT_EQ(budget.used_bytes(), 0U);
  // A client with another body may hold twice the bytes that remain.
  BodyBudget shared(1000);
  const auto share = shared.share_of("a");
  EXPECT_EQ(shared.share_of("a"), share);
  EXPECT_NE(shared.share_of("b"), share);
  BodyBudget::Lease first(shared, share), second(shared, share);
  EXPECT_TRUE(first.grow_to(400));
  EXPECT_EQ(share->used_bytes, 400U);
  EXPECT_TRUE(second.grow_to(600)) << "600 remain, and the client may hold twice as much";
  BodyBudget tight(1000);
  const auto of_a = tight.share_of("a");
  BodyBudget::Lease one(tight, of_a), two(tight, of_a);
  EXPECT_TRUE(one.grow_to(600));
  EXPECT_TRUE(two.grow_to(200));
  EXPECT_EQ(of_a->used_bytes, 800U);
  BodyBudget::Lease three(tight, of_a);
  EXPECT_FALSE(three.grow_to(1)) << "200 remain, and the client would hold more than 400";
  EXPECT_EQ(tight.used_bytes(), 800U);
}

TEST(BodyPaces, RunDownWithTimeAndFillWithBytes) {
  using namespace std::chrono_literals;
  const BodyPace::Clock::time_point start{};
  BodyPace pace(1000, 10'000ms, start);
  EXPECT_EQ(pace.ends(), start + 10s);
  EXPECT_FALSE(pace.is_slow(start + 2s)) << "a fifth of the grace period";
  EXPECT_TRUE(pace.is_slow(start + 2s + 1ms));
  pace.add(1000, start + 4s);
  EXPECT_EQ(pace.ends(), start + 11s) << "1000 bytes are one second";
  pace.add(1'000'000, start + 5s);
  EXPECT_EQ(pace.ends(), start + 15s) << "never more than the grace period";
  pace.add(500, start + 20s);
  EXPECT_EQ(pace.ends(), start + 20s + 500ms) << "time that is over does not count against later bytes";
  BodyPace none(0, 10'000ms, start);
  none.add(1, start);
  EXPECT_EQ(none.ends(), BodyPace::Clock::time_point::max());
}

TEST(BodyCuts, TakeTheLargestSlowBodyOfAClientThatHoldsAsMuch) {
  using namespace std::chrono_literals;
  const BodyPace::Clock::time_point start{}, late = start + 9s;
  BodyBudget budget(100);
  BodyReaders readers;
  std::vector<std::string> cuts;
  const auto of_a = budget.share_of("a"), of_b = budget.share_of("b"), of_c = budget.share_of("c");
  BodyBudget::Lease a(budget, of_a), b(budget, of_b), c(budget, of_c);
  BodyPace slow(1, 10'000ms, start), fast(1, 10'000ms, late);
  ASSERT_TRUE(a.grow_to(30));
  ASSERT_TRUE(b.grow_to(50));
  const BodyReaders::Entry first(readers, {a, slow, [&] { cuts.emplace_back("a"); }});
  const BodyReaders::Entry second(readers, {b, slow, [&] { cuts.emplace_back("b"); }});
  const BodyReaders::Entry third(readers, {c, slow, [&] { cuts.emplace_back("c"); }});
  ASSERT_TRUE(readers.grow(c, 20, late));
  EXPECT_TRUE(cuts.empty()) << "there was room";
  ASSERT_TRUE(readers.grow(c, 30, late));
  EXPECT_EQ(cuts, std::vector<std::string>{"b"}) << "the largest";
  EXPECT_EQ(b.bytes(), 0U);
  EXPECT_EQ(budget.used_bytes(), 60U);
  ASSERT_TRUE(readers.grow(c, 80, late));
  EXPECT_EQ(cuts, (std::vector<std::string>{"b", "a"})) << "a client that holds as much";
  EXPECT_FALSE(readers.grow(c, 101, late)) << "the body itself is not cut";
  EXPECT_EQ(c.bytes(), 80U);
  BodyReaders others;
  BodyBudget::Lease d(budget, budget.share_of("d"));
  const BodyReaders::Entry quick(others, {c, fast, [&] { cuts.emplace_back("quick"); }});
  EXPECT_FALSE(others.grow(d, 30, late)) << "the other body is fast enough";
  EXPECT_EQ(cuts.size(), 2U);
}

}  // namespace
}  // namespace quire
