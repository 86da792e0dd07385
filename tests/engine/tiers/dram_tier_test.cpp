// Tests the tier in host memory: its size, what it counts, and the blocks that it drops without a tier below that has them.
#include "engine/tiers/dram_tier.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/tiers/hashed_request.h"
#include "engine/tiers/tier_check.h"
#include "runtime/tier/toy_cache.h"

namespace quire {
namespace {

using test::kSmallBlockBytes;
using test::small_key;

std::shared_ptr<DramTier> make_dram(const KvDramOptions& options) {
  return DramTier::create(options, test::small_config(), test::small_layout()).value();
}

TEST(DramTier, HasASlotForEachBlockThatFits) {
  for (const auto& [bytes, num_slots] : {std::pair(32ULL, 1U), {63ULL, 1U}, {64ULL, 2U}}) {
    const KvTierStats stats = make_dram({.bytes = bytes})->stats();
    EXPECT_EQ(stats.name, "dram");
    EXPECT_EQ(stats.budget_bytes, bytes);
    EXPECT_EQ(stats.place_bytes, kSmallBlockBytes);
    EXPECT_EQ(stats.num_places, num_slots);
    EXPECT_EQ(stats.num_used_slots, 0U);
    EXPECT_EQ(stats.num_unread_slots, 0U);
  }
  // A slot holds a block of the largest group.
  KvLayout layout = test::two_groups();
  std::swap(layout.groups[0], layout.groups[1]);
  EXPECT_EQ(DramTier::create({.bytes = 18000}, test::small_config(), layout).value()->stats().num_places, 2U);
}

TEST(DramTier, RefusesSizesThatHoldNoBlockOrTooMany) {
  const auto refusal = [](std::uint64_t bytes, std::uint64_t page_bytes) {
    KvLayout layout = test::small_layout();
    layout.page_bytes = {page_bytes};
    const auto tier = DramTier::create({.bytes = bytes}, test::small_config(), layout);
    return tier ? "" : tier.error().to_string();
  };
  EXPECT_EQ(refusal(31, 32), "kv_dram: 31 bytes hold 0 blocks of 32 bytes; use a size that holds 1 to 268435456 blocks");
  EXPECT_EQ(refusal(268435457, 1),
            "kv_dram: 268435457 bytes hold 268435457 blocks of 1 bytes; use a size that holds 1 to 268435456 blocks");
  EXPECT_TRUE(refusal(std::uint64_t{4} << 30U, std::uint64_t{2} << 30U).starts_with("kv_dram: 2147483648 is not 1 to 1073741824"))
      << refusal(std::uint64_t{4} << 30U, std::uint64_t{2} << 30U);
  CoreConfig config = test::small_config();
  config.prefix_cache.enable_prefix_caching = false;
  EXPECT_EQ(DramTier::create({.bytes = 64}, config, test::small_layout()).error().field, "kv_dram");
  EXPECT_EQ(DramTier::create({.bytes = 64, .eviction_policy = "fifo"}, test::small_config(), test::small_layout()).error().field,
            "eviction_policy");
}

TEST(DramTier, PassesItsOptionsToTheConnector) {
  EXPECT_TRUE(test::joins_loads(make_dram({.bytes = 320, .join_loads = true})->offload()));
  EXPECT_FALSE(test::joins_loads(make_dram({.bytes = 320})->offload()));
  EXPECT_EQ(make_dram({.bytes = 320})->offload().ledger().filter(), nullptr);
  EXPECT_NE(make_dram({.bytes = 320, .store_threshold = 2})->offload().ledger().filter(), nullptr);
}

// A tier whose blocks 1 to 3 are stored, and then loaded.
class MovedDram {
 public:
  explicit MovedDram(KvTierPolicy policy) : tier(make_dram({.bytes = 10 * kSmallBlockBytes, .policy = policy})) {
    tier->transport().attach({.layout = &layout, .tensors = {memory.data()}}, [] {});
    move(TransferDirection::store, 1);
    for (std::uint64_t number = 1; number <= 3; ++number) tier->offload().release(small_key(number));
  }
  ~MovedDram() { tier->transport().detach(); }
  MovedDram(const MovedDram&) = delete;
  MovedDram& operator=(const MovedDram&) = delete;

  void load() {
    move(TransferDirection::load, 2);
    for (std::uint64_t number = 1; number <= 3; ++number) tier->offload().release(small_key(number));
  }

  const KvLayout layout = test::small_layout();
  std::vector<std::byte> memory = std::vector<std::byte>(layout.total_bytes(), std::byte{1});
  const std::shared_ptr<DramTier> tier;

 private:
  void move(TransferDirection direction, std::uint64_t id) {
    std::vector<std::uint64_t> places;
    for (std::uint64_t number = 1; number <= 3; ++number) {
      if (direction == TransferDirection::store) test::add_key(tier->offload(), number);
      places.push_back(tier->offload().hold(small_key(number)).value());
    }
    const std::vector<BlockId> blocks{BlockId{1}, BlockId{2}, BlockId{3}};
    tier->transport().start({.id = TransferId{id}, .request = {}, .direction = direction, .blocks = blocks, .places = places});
    tier->transport().wait(TransferId{id});
    std::vector<TransferCompletion> over;
    tier->transport().poll(over);
    EXPECT_EQ(over.at(0).outcome, TransferOutcome::done);
  }
};

TEST(DramTier, CountsMovedBlocks) {
  MovedDram moved(KvTierPolicy::exact);
  KvTierStats stats = moved.tier->stats();
  EXPECT_EQ(stats.num_used_slots, 3U);
  EXPECT_EQ(stats.num_stored_blocks, 3U);
  EXPECT_EQ(stats.bytes_stored, 3 * kSmallBlockBytes);
  EXPECT_EQ(stats.num_loaded_blocks, 0U);
  moved.load();
  EXPECT_FALSE(moved.tier->maintain(100.0)) << "the policy needs no costs";
  stats = moved.tier->stats();
  EXPECT_EQ(stats.num_loaded_blocks, 3U);
  EXPECT_EQ(stats.bytes_loaded, 3 * kSmallBlockBytes);
  const MemoryTransportStats bytes = moved.tier->memory().stats();
  EXPECT_DOUBLE_EQ(stats.load_bytes_per_s, static_cast<double>(bytes.bytes_loaded) / bytes.seconds_loaded);
  EXPECT_EQ(stats.compute_tokens_per_s, 0.0);
  EXPECT_EQ(stats.num_corrupted_blocks + stats.num_failed_blocks + stats.num_dropped_blocks + stats.num_without_slot, 0U);
  EXPECT_EQ(moved.tier->policy(), KvTierPolicy::exact);
}

TEST(DramTier, MeasuresTheCostsOfLoads) {
  MovedDram moved(KvTierPolicy::measured);
  EXPECT_TRUE(moved.tier->maintain(100.0));
  EXPECT_FALSE(moved.tier->maintain(100.0)) << "nothing has changed";
  EXPECT_EQ(moved.tier->stats().compute_tokens_per_s, 100.0);
  EXPECT_TRUE(moved.tier->maintain(200.0));
  moved.load();
  EXPECT_TRUE(moved.tier->maintain(200.0));
  const MemoryTransportStats once = moved.tier->memory().stats();
  moved.load();
  EXPECT_TRUE(moved.tier->maintain(200.0));
  const MemoryTransportStats twice = moved.tier->memory().stats();
  const double kept = std::exp(-(twice.seconds_loaded - once.seconds_loaded) / kLoadHorizon_s);
  const double bytes = static_cast<double>(once.bytes_loaded);
  EXPECT_NEAR(moved.tier->stats().load_bytes_per_s,
              (bytes * kept + bytes) / (once.seconds_loaded * kept + twice.seconds_loaded - once.seconds_loaded),
              1e-6 * moved.tier->stats().load_bytes_per_s);
}

TEST(DramTier, CountsBlocksThatAreDroppedWithoutATierBelowThatHasThem) {
  const auto lower = OffloadConnector::create({.cpu_bytes_to_use = 320}, test::small_config(), kSmallBlockBytes).value();
  const auto tier = make_dram({.bytes = kSmallBlockBytes});
  OffloadConnector& connector = tier->offload();
  connector.on_query_hit(small_key(1));
  connector.on_query_hit(small_key(2));
  EXPECT_EQ(tier->stats().num_dropped_blocks, 0U) << "there is no tier below";
  tier->set_lower_ledger(lower->ledger());
  connector.on_query_hit(small_key(3));
  EXPECT_EQ(tier->stats().num_dropped_blocks, 1U) << "block 2 is in neither tier";
  test::add_key(*lower, 3);
  connector.on_query_hit(small_key(4));
  EXPECT_EQ(tier->stats().num_dropped_blocks, 1U) << "the tier below has block 3";
  ASSERT_TRUE(lower->adopt(small_key(4)));
  connector.on_query_hit(small_key(5));
  EXPECT_EQ(tier->stats().num_dropped_blocks, 2U) << "block 4 is not below yet";
}

TEST(DramTier, SharesStoredBlocksUntilTheyAreForgotten) {
  MovedDram moved(KvTierPolicy::exact);
  OffloadConnector& connector = moved.tier->offload();
  const std::shared_ptr<PeerBlockSource> source = DramTier::share(moved.tier);
  EXPECT_EQ(source->block_bytes(0), kSmallBlockBytes);
  EXPECT_FALSE(source->holds(small_key(1))) << "only blocks that get a slot from now on are shared";
  test::add_key(connector, 9);
  EXPECT_FALSE(source->holds(small_key(9))) << "its bytes are not there yet";
  const std::vector<BlockId> blocks{BlockId{4}};
  const std::vector<std::uint64_t> places{connector.hold(small_key(9)).value()};
  moved.tier->transport().start(
      {.id = TransferId{7}, .request = {}, .direction = TransferDirection::store, .blocks = blocks, .places = places});
  moved.tier->transport().wait(TransferId{7});
  EXPECT_TRUE(source->holds(small_key(9)));
  std::vector<std::byte> bytes(kSmallBlockBytes);
  EXPECT_TRUE(source->read(small_key(9), bytes));
  EXPECT_EQ(bytes, std::vector<std::byte>(kSmallBlockBytes, std::byte{1}));
  const test::HashedRequest request(1, test::kSmallBlock, 9);
  connector.forget_blocks(request.view);
  EXPECT_FALSE(source->holds(small_key(9))) << "the slot still has the bytes, but they are not trusted";
  connector.release(small_key(9));
}

}  // namespace
}  // namespace quire
