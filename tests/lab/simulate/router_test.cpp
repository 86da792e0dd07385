#include "lab/simulate/router.h"

#include <gtest/gtest.h>

#include <cstring>

namespace quire {
namespace {

std::vector<BlockHash> names_of(std::uint64_t first, std::size_t count) {
  std::vector<BlockHash> names(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t value = first + i;
    std::memcpy(names[i].bytes.data(), &value, sizeof value);
  }
  return names;
}

TEST(Router, RoundRobinGoesRound) {
  Router router(Routing::round_robin);
  const std::vector<std::uint32_t> open = {9, 0, 0};
  EXPECT_EQ(router.choose({}, open), 0U);
  EXPECT_EQ(router.choose({}, open), 1U);
  EXPECT_EQ(router.choose({}, open), 2U);
  EXPECT_EQ(router.choose({}, open), 0U);
}

TEST(Router, LeastLoadedTakesTheIdlest) {
  Router router(Routing::least_loaded);
  EXPECT_EQ(router.choose({}, std::vector<std::uint32_t>{3, 1, 2}), 1U);
  EXPECT_EQ(router.choose({}, std::vector<std::uint32_t>{1, 1, 2}), 0U);
}

TEST(Router, APrefixGoesWhereItWasComputed) {
  Router router(Routing::by_prefix);
  const auto first = names_of(1000, 40), second = names_of(5000, 40);
  EXPECT_EQ(router.choose(first, std::vector<std::uint32_t>{0, 1}), 0U);
  EXPECT_EQ(router.choose(second, std::vector<std::uint32_t>{2, 1}), 1U);
  // The first one's conversation goes on, longer, although its instance is the busier one.
  auto longer = first;
  const auto more = names_of(9000, 40);
  longer.insert(longer.end(), more.begin(), more.end());
  EXPECT_EQ(router.choose(longer, std::vector<std::uint32_t>{5, 1}), 0U);
}

TEST(Router, AMuchBusierInstanceIsNotChosenForWhatItKnows) {
  Router router(Routing::by_prefix);
  const auto names = names_of(1000, 40);
  EXPECT_EQ(router.choose(names, std::vector<std::uint32_t>{0, 1}), 0U);
  EXPECT_EQ(router.choose(names, std::vector<std::uint32_t>{100, 1}), 1U);
}

}  // namespace
}  // namespace quire
