#include "lab/simulate/router.h"

#include <gtest/gtest.h>

#include <cstring>

namespace quire {
namespace {

std::vector<BlockHash> hashes_of(std::uint64_t first, std::size_t count) {
  std::vector<BlockHash> hashes(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t value = first + i;
    std::memcpy(hashes[i].bytes.data(), &value, sizeof value);
  }
  return hashes;
}

TEST(InstanceRouter, RoundRobinCyclesThroughInstances) {
  InstanceRouter router(Routing::round_robin);
  const std::vector<std::uint32_t> open = {9, 0, 0};
  EXPECT_EQ(router.choose({}, open), 0U);
  EXPECT_EQ(router.choose({}, open), 1U);
  EXPECT_EQ(router.choose({}, open), 2U);
  EXPECT_EQ(router.choose({}, open), 0U);
}

TEST(InstanceRouter, LeastLoadedChoosesTheInstanceWithTheFewestRequests) {
  InstanceRouter router(Routing::least_loaded);
  EXPECT_EQ(router.choose({}, std::vector<std::uint32_t>{3, 1, 2}), 1U);
  EXPECT_EQ(router.choose({}, std::vector<std::uint32_t>{1, 1, 2}), 0U);
}

TEST(InstanceRouter, ByPrefixChoosesTheInstanceThatHasThePrefix) {
  InstanceRouter router(Routing::by_prefix);
  const auto first = hashes_of(1000, 40), second = hashes_of(5000, 40);
  EXPECT_EQ(router.choose(first, std::vector<std::uint32_t>{0, 1}), 0U);
  EXPECT_EQ(router.choose(second, std::vector<std::uint32_t>{2, 1}), 1U);
  // The first conversation continues with a longer prompt and returns to its instance, although that instance is busier.
  auto longer = first;
  const auto more = hashes_of(9000, 40);
  longer.insert(longer.end(), more.begin(), more.end());
  EXPECT_EQ(router.choose(longer, std::vector<std::uint32_t>{5, 1}), 0U);
}

TEST(InstanceRouter, ByPrefixAvoidsAMuchBusierInstance) {
  InstanceRouter router(Routing::by_prefix);
  const auto hashes = hashes_of(1000, 40);
  EXPECT_EQ(router.choose(hashes, std::vector<std::uint32_t>{0, 1}), 0U);
  EXPECT_EQ(router.choose(hashes, std::vector<std::uint32_t>{100, 1}), 1U);
}

}  // namespace
}  // namespace quire
