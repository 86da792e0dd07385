// A server shares only blocks in host memory that are stored under their block hash.
#include "engine/tiers/dram_peer_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "runtime/tier/toy_cache.h"

namespace quire::test {
namespace {

class DramPeerIndexTest : public testing::Test {
 protected:
  DramPeerIndexTest() {
    memory_->attach(cache_.pages(), [] {});
  }
  // Stores block `content` in the slot under the hash of number `name`.
  void keep(std::uint32_t place, std::uint64_t name, std::uint64_t content) {
    const std::uint64_t number = memory_->assign(place, name_of(name));
    peer_index_.put(place, name_of(name), number);
    cache_.fill(BlockId{1}, content);
    const TransferId id{next_id_++};
    memory_->start({.id = id,
                    .request = {},
                    .direction = TransferDirection::store,
                    .group = 0,
                    .blocks = std::vector{BlockId{1}},
                    .places = std::vector{number}});
    memory_->wait(id);
    std::vector<TransferCompletion> over;
    memory_->poll(over);
    EXPECT_EQ(over.at(0).outcome, TransferOutcome::done);
  }
  [[nodiscard]] bool gives(std::uint64_t name, std::uint64_t content) {
    std::vector<std::byte> bytes(9000);
    if (!peer_index_.holds(name_of(name)) || !peer_index_.read(name_of(name), bytes)) return false;
    return std::ranges::equal(std::span(bytes).first(6000), tier_block(content * 2, 6000));
  }
  static OffloadKey name_of(std::uint64_t number) {
    OffloadKey name = tier_name(number);
    name.group = 0;
    return name;
  }

  ToyCache cache_;
  std::unique_ptr<MemoryTransport> memory_ = MemoryTransport::create({.num_places = 4, .block_bytes = 9000}).value();
  DramPeerIndex peer_index_{*memory_, {9000, 6000}};
  std::uint64_t next_id_ = 0;
};

TEST_F(DramPeerIndexTest, ReturnsStoredBlocks) {
  keep(0, 1, 11);
  keep(1, 2, 12);
  EXPECT_TRUE(gives(1, 11) && gives(2, 12));
  EXPECT_FALSE(peer_index_.holds(name_of(3)));
  peer_index_.remove(name_of(1));
  EXPECT_FALSE(peer_index_.holds(name_of(1)));
  EXPECT_TRUE(gives(2, 12));
  EXPECT_EQ(peer_index_.block_bytes(0), 9000U);
  EXPECT_EQ(peer_index_.block_bytes(1), 6000U);
  EXPECT_EQ(peer_index_.block_bytes(2), 0U) << "there is no such group";
}

TEST_F(DramPeerIndexTest, ForgetsTheBlockThatItsSlotHeldBefore) {
  keep(0, 1, 11);
  keep(0, 2, 12);
  EXPECT_FALSE(peer_index_.holds(name_of(1)));
  EXPECT_TRUE(gives(2, 12));
}

TEST_F(DramPeerIndexTest, StillReturnsAMovedBlockWhenItsOldSlotIsReused) {
  keep(0, 1, 11);
  keep(1, 1, 11);
  keep(0, 2, 12);
  EXPECT_TRUE(gives(1, 11)) << "the block is in the other slot";
  EXPECT_TRUE(gives(2, 12));
}

}  // namespace
}  // namespace quire::test
