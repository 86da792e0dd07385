// Tests which models are unloaded for another one.
#include "server/models/choose_victims.h"

#include <gtest/gtest.h>

#include <initializer_list>

namespace quire {
namespace {

using Victims = std::optional<std::vector<std::size_t>>;

Victims victims(std::initializer_list<std::size_t> indices) {
  return std::vector<std::size_t>(indices);
}

ResidentModel resident(std::uint64_t bytes, std::uint64_t last_use, bool is_busy = false, bool must_stay = false) {
  return {.bytes = bytes, .must_stay = must_stay, .is_busy = is_busy, .last_use = last_use};
}

TEST(ChooseVictims, ChoosesNoneWhileTheModelFits) {
  EXPECT_EQ(choose_victims(std::vector{resident(4, 1)}, 6, {.bytes = 10, .max_models = 2}), victims({}));
  EXPECT_EQ(choose_victims(std::vector{resident(4, 1), resident(400, 2)}, 6, {}), victims({}));
}

TEST(ChooseVictims, TakesTheLeastRecentlyUsedIdleModels) {
  const std::vector residents = {resident(4, 3), resident(4, 1), resident(4, 2)};
  EXPECT_EQ(choose_victims(residents, 4, {.bytes = 12, .max_models = 0}), victims({1}));
  EXPECT_EQ(choose_victims(residents, 8, {.bytes = 12, .max_models = 0}), victims({1, 2}));
  EXPECT_EQ(choose_victims(residents, 1, {.bytes = 0, .max_models = 2}), victims({1, 2}));
}

TEST(ChooseVictims, TakesBusyModelsLast) {
  const std::vector residents = {resident(4, 1, true), resident(4, 9), resident(4, 2, true)};
  EXPECT_EQ(choose_victims(residents, 4, {.bytes = 12, .max_models = 0}), victims({1}));
  EXPECT_EQ(choose_victims(residents, 8, {.bytes = 12, .max_models = 0}), victims({1, 0}));
}

TEST(ChooseVictims, ReturnsNulloptWhenModelsThatStayLeaveNoRoom) {
  EXPECT_EQ(choose_victims(std::vector{resident(4, 1, true, true)}, 4, {.bytes = 7, .max_models = 0}), std::nullopt);
  EXPECT_EQ(choose_victims(std::vector{resident(4, 1, true, true)}, 1, {.bytes = 0, .max_models = 1}), std::nullopt);
  EXPECT_EQ(choose_victims({}, 8, {.bytes = 7, .max_models = 0}), std::nullopt);
}

TEST(Fits, CountsModelsAndBytes) {
  EXPECT_TRUE(fits({}, 7, {.bytes = 7, .max_models = 1}));
  EXPECT_FALSE(fits({}, 8, {.bytes = 7, .max_models = 1}));
  EXPECT_FALSE(fits(std::vector{resident(0, 1)}, 0, {.bytes = 7, .max_models = 1}));
}

}  // namespace
}  // namespace quire
