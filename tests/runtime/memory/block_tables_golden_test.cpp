// Compares block tables with vLLM's MultiGroupBlockTable value for value over 10,000 random histories. tests/golden/block_tables.txt has
// digests of vLLM's tables (tools/record/block_tables.py draws the same histories).
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <vector>

#include "base/digest.h"
#include "base/random.h"
#include "runtime/memory/block_tables.h"

namespace quire {
namespace {

constexpr std::uint32_t kHistoriesPerDigest = 250;
constexpr std::uint32_t kNumBlocks = 50;

class History {
 public:
  explicit History(std::uint64_t seed) : random_(seed) {
    num_rows_ = 2 + below(4);
    const std::uint32_t max_model_len = 40 + below(160);
    ContextParallel parallel;
    parallel.dcp_world_size = std::array{1U, 1U, 2U, 4U}[below(4)];
    parallel.dcp_rank = below(parallel.dcp_world_size);
    parallel.pcp_world_size = std::array{1U, 1U, 3U}[below(3)];
    parallel.pcp_rank = below(parallel.pcp_world_size);
    parallel.interleave_size = std::array{1U, 1U, 2U, 4U}[below(4)];
    std::vector<BlockTableLimits> groups(1 + below(3));
    for (BlockTableLimits& group : groups) {
      group.num_rows = num_rows_;
      group.max_model_len = max_model_len;
      group.num_blocks = kNumBlocks;
      group.kernel_block_size = std::array{4U, 8U, 16U}[below(3)];
      group.block_size = group.kernel_block_size * std::array{1U, 1U, 2U, 3U}[below(4)];
      group.parallel = parallel;
    }
    tables_ = std::make_unique<BlockTables>(groups);
  }

  void play(Sha256& digest) {
    for (std::uint32_t left = 10 + below(15); left > 0; --left) {
      const std::uint32_t kind = below(10);
      const Slot slot{below(num_rows_)}, other{below(num_rows_)};
      if (kind <= 3)
        give_blocks(slot, kind == 3 ? TableUpdate::replace_all : TableUpdate::append);
      else if (kind == 4)
        tables_->release(slot);
      else if (kind == 5)
        tables_->move(slot, other);
      else if (kind == 6)
        tables_->swap(slot, other);
      else if (kind <= 8)
        commit(below(num_rows_ + 1), digest);
      else
        map_slots(digest);
    }
    digest_state(digest);
  }

 private:
  std::uint32_t below(std::uint64_t bound) { return static_cast<std::uint32_t>(random_.below(bound)); }

  template <class T>
  static void update(Sha256& digest, std::span<const T> values) {
    digest.update(std::as_bytes(values));
  }

  void give_blocks(Slot slot, TableUpdate change) {
    for (std::uint32_t group = 0; group < tables_->num_groups(); ++group) {
      const BlockTable& table = tables_->table(group);
      const std::uint32_t ratio = table.limits().block_size / table.limits().kernel_block_size;
      const std::uint32_t held = change == TableUpdate::append ? table.staged_counts()[slot.value] : 0;
      std::vector<BlockId> blocks(below((table.row_capacity() - held) / ratio + 1));
      for (BlockId& block : blocks) block = BlockId{below(kNumBlocks)};
      tables_->apply({.slot = slot, .group = group, .id = {}, .update = change, .index = 0, .blocks = blocks});
    }
  }

  void commit(std::uint32_t num_rows, Sha256& digest) {
    tables_->commit(num_rows);
    digest_state(digest);
  }

  void map_slots(Sha256& digest) {
    std::vector<std::pair<Slot, std::uint32_t>> tokens;
    for (std::uint32_t row = 0; row < num_rows_; ++row) {
      std::uint64_t limit = UINT64_MAX;
      for (std::uint32_t group = 0; group < tables_->num_groups(); ++group) {
        const BlockTableLimits& limits = tables_->table(group).limits();
        limit = std::min(limit, tables_->row(group, Slot{row}).size() * limits.kernel_block_size * limits.parallel.world_size());
      }
      for (std::uint32_t left = below(8); left > 0; --left)
        if (limit > 0) tokens.emplace_back(Slot{row}, below(limit));
    }
    for (std::uint32_t group = 0; group < tables_->num_groups(); ++group) {
      std::vector<std::int64_t> slots;
      for (const auto& [slot, position] : tokens) slots.push_back(tables_->kv_slot(group, slot, position));
      update(digest, std::span<const std::int64_t>(slots));
    }
  }

  void digest_state(Sha256& digest) {
    for (std::uint32_t group = 0; group < tables_->num_groups(); ++group) {
      const BlockTable& table = tables_->table(group);
      update(digest, table.staged());
      update(digest, table.staged_counts());
      update(digest, table.committed());
    }
  }

  Random random_;
  std::uint32_t num_rows_ = 0;
  std::unique_ptr<BlockTables> tables_;
};

TEST(BlockTables, EqualVllmsIn10000RandomHistories) {
  std::ifstream record("tests/golden/block_tables.txt");
  std::uint32_t first = 0;
  std::string wanted;
  std::uint32_t num_histories = 0;
  while (record >> first >> wanted) {
    Sha256 digest;
    for (std::uint32_t i = first; i < first + kHistoriesPerDigest; ++i) History(i).play(digest);
    EXPECT_EQ(to_hex(digest.finish()), wanted) << "one of the histories from " << first;
    num_histories += kHistoriesPerDigest;
  }
  EXPECT_EQ(num_histories, 10'000U);
}

}  // namespace
}  // namespace quire
