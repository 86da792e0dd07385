// Tests the blocks in which states after a request's rows are saved: at the ends of blocks, after the last row, and after drafts in spare
// blocks.
#include "runtime/memory/state_slots.h"

#include <gtest/gtest.h>

#include <vector>

namespace quire {
namespace {

constexpr std::uint32_t kTokens = 4;  // tokens per block

std::vector<std::uint32_t> blocks_of(const std::vector<BlockId>& blocks, std::uint32_t num_spare, const StateRows& rows) {
  const StateSlots places(blocks, kTokens, num_spare, rows);
  std::vector<std::uint32_t> all;
  for (std::uint32_t row = 0; row < rows.num_tokens; ++row) all.push_back(places.after(row).value);
  return all;
}

TEST(StateSlots, SavesAtBlockEndsAndAfterTheLastRowWithoutDrafts) {
  const std::vector<BlockId> blocks{kNullBlock, BlockId{11}, BlockId{12}};
  EXPECT_EQ(blocks_of(blocks, 0, {0, 10, 0}), (std::vector<std::uint32_t>{0, 0, 0, 0, 0, 0, 0, 11, 0, 12}));
  EXPECT_EQ(blocks_of(blocks, 0, {5, 1, 0}), (std::vector<std::uint32_t>{11}));
  const StateSlots places(blocks, kTokens, 0, {8, 2, 0});
  EXPECT_EQ(places.before(), BlockId{11});
  EXPECT_EQ(places.first_saved_row(), 1U);
}

TEST(StateSlots, SavesInSpareBlocksAfterDraftsUntilTheyAreVerified) {
  const std::vector<BlockId> blocks{kNullBlock, BlockId{11}, BlockId{21}, BlockId{22}};
  EXPECT_EQ(blocks_of(blocks, 2, {4, 3, 2}), (std::vector<std::uint32_t>{21, 22, 11}));
  EXPECT_EQ(blocks_of(blocks, 2, {5, 3, 2}), (std::vector<std::uint32_t>{21, 22, 11})) << "the last row ends a block as well";
  EXPECT_EQ(blocks_of(blocks, 2, {4, 4, 1}), (std::vector<std::uint32_t>{0, 0, 21, 11})) << "tokens before a single draft";
  const StateSlots places(blocks, kTokens, 2, {4, 3, 2});
  for (const std::uint32_t row : {0U, 1U, 2U}) EXPECT_EQ(places.final_block(row), BlockId{11});
}

TEST(StateSlots, SavesTheStateOfABlockThatEndsWithADraft) {
  const std::vector<BlockId> blocks{kNullBlock, BlockId{11}, BlockId{12}, BlockId{21}, BlockId{22}};
  EXPECT_EQ(blocks_of(blocks, 2, {6, 3, 2}), (std::vector<std::uint32_t>{21, 11, 12}));
  // The core has moved a spare block to the end, and the table still lists it at its old index, too.
  const std::vector<BlockId> moved{kNullBlock, BlockId{22}, BlockId{12}, BlockId{21}, BlockId{22}};
  EXPECT_EQ(blocks_of(moved, 2, {6, 3, 2}), (std::vector<std::uint32_t>{21, 22, 12}));
  EXPECT_EQ(blocks_of(moved, 2, {7, 3, 2}), (std::vector<std::uint32_t>{21, 22, 12})) << "not the slot of the second draft";
}

TEST(StateSlotsDeathTest, ARowWithoutABlockAbortsTheProgram) {
  const std::vector<BlockId> blocks{BlockId{10}, kNullBlock};
  EXPECT_DEATH(blocks_of(blocks, 0, {4, 1, 0}), "the state has a block");
  EXPECT_DEATH(blocks_of(blocks, 0, {7, 2, 0}), "the position is within the blocks of the request");
  EXPECT_DEATH(blocks_of(blocks, 1, {0, 3, 2}), "the row is one of the request's rows");
}

}  // namespace
}  // namespace quire
