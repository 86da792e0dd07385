// Where states behind the rows of a request go: to the ends of blocks, behind the last row, and behind drafts to spare blocks.
#include "runtime/memory/state_places.h"

#include <gtest/gtest.h>

#include <vector>

namespace quire {
namespace {

constexpr std::uint32_t kTokens = 4;  // of a block

std::vector<std::uint32_t> places_of(const std::vector<BlockId>& blocks, std::uint32_t num_spare, const StateRows& rows) {
  const StatePlaces places(blocks, kTokens, num_spare, rows);
  std::vector<std::uint32_t> all;
  for (std::uint32_t row = 0; row < rows.num_tokens; ++row) all.push_back(places.behind(row).value);
  return all;
}

TEST(StatePlaces, WithoutDraftsTheyAreTheEndsOfBlocksAndTheLastRow) {
  const std::vector<BlockId> blocks{kNullBlock, BlockId{11}, BlockId{12}};
  EXPECT_EQ(places_of(blocks, 0, {0, 10, 0}), (std::vector<std::uint32_t>{0, 0, 0, 0, 0, 0, 0, 11, 0, 12}));
  EXPECT_EQ(places_of(blocks, 0, {5, 1, 0}), (std::vector<std::uint32_t>{11}));
  const StatePlaces places(blocks, kTokens, 0, {8, 2, 0});
  EXPECT_EQ(places.before(), BlockId{11});
  EXPECT_EQ(places.first_kept(), 1U);
}

TEST(StatePlaces, BehindDraftsTheyAreSpareUntilItIsKnownWhichIsRight) {
  const std::vector<BlockId> blocks{kNullBlock, BlockId{11}, BlockId{21}, BlockId{22}};
  EXPECT_EQ(places_of(blocks, 2, {4, 3, 2}), (std::vector<std::uint32_t>{21, 22, 11}));
  EXPECT_EQ(places_of(blocks, 2, {5, 3, 2}), (std::vector<std::uint32_t>{21, 22, 11})) << "the last one ends a block as well";
  EXPECT_EQ(places_of(blocks, 2, {4, 4, 1}), (std::vector<std::uint32_t>{0, 0, 21, 11})) << "tokens before a single draft";
  const StatePlaces places(blocks, kTokens, 2, {4, 3, 2});
  for (const std::uint32_t row : {0U, 1U, 2U}) EXPECT_EQ(places.home(row), BlockId{11});
}

TEST(StatePlaces, ABlockThatEndsWithADraftGetsItsState) {
  const std::vector<BlockId> blocks{kNullBlock, BlockId{11}, BlockId{12}, BlockId{21}, BlockId{22}};
  EXPECT_EQ(places_of(blocks, 2, {6, 3, 2}), (std::vector<std::uint32_t>{21, 11, 12}));
  // The core has moved a spare block to the end, and the table names it where it was, too.
  const std::vector<BlockId> moved{kNullBlock, BlockId{22}, BlockId{12}, BlockId{21}, BlockId{22}};
  EXPECT_EQ(places_of(moved, 2, {6, 3, 2}), (std::vector<std::uint32_t>{21, 22, 12}));
  EXPECT_EQ(places_of(moved, 2, {7, 3, 2}), (std::vector<std::uint32_t>{21, 22, 12})) << "not the second one's place";
}

TEST(StatePlacesDeathTest, ARowWithoutAPlaceStopsTheProgram) {
  const std::vector<BlockId> blocks{BlockId{10}, kNullBlock};
  EXPECT_DEATH(places_of(blocks, 0, {4, 1, 0}), "the state has a place");
  EXPECT_DEATH(places_of(blocks, 0, {7, 2, 0}), "position beyond the block table");
  EXPECT_DEATH(places_of(blocks, 1, {0, 3, 2}), "a row that may be kept");
}

}  // namespace
}  // namespace quire
