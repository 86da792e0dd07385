// Compares the ledger of open transfers with a naive ledger, and tests how the core handles finished transfers.
#include "core/schedule/moves/open_transfers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/random.h"
#include "core/schedule/core_driver.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

struct NaiveTransfer {
  RequestId request;
  TransferDirection direction = TransferDirection::load;
  TransferNeed need = TransferNeed::nothing;
  std::uint32_t group = 0, tier = 0;
  std::vector<BlockId> blocks;
  std::vector<std::uint64_t> places;

  [[nodiscard]] bool touches(BlockId block) const { return std::ranges::find(blocks, block) != blocks.end(); }
  [[nodiscard]] bool is_load() const { return direction == TransferDirection::load; }
};

constexpr std::uint32_t kLedgerBlocks = 12;
constexpr std::size_t kMostOpen = 8;

BlockId any_block(Random& random) {
  return BlockId{1 + static_cast<std::uint32_t>(random.below(kLedgerBlocks - 1))};
}

NaiveTransfer random_transfer(Random& random) {
  NaiveTransfer transfer{.request = RequestId{random.below(5)},
                         .direction = random.chance(0.5) ? TransferDirection::load : TransferDirection::store,
                         .need = TransferNeed{static_cast<std::uint8_t>(random.below(3))},
                         .group = static_cast<std::uint32_t>(random.below(3)),
                         .tier = static_cast<std::uint32_t>(random.below(3)),
                         .blocks = {},
                         .places = {}};
  std::set<BlockId> blocks;
  for (std::uint64_t i = random.below(4); i > 0; --i) blocks.insert(any_block(random));
  for (const BlockId block : blocks) {
    transfer.blocks.push_back(block);
    transfer.places.push_back(random.below(100));
  }
  return transfer;
}

// Compares an entry of the ledger, or a transfer of a plan (which also has the group), with the naive transfer.
template <class Given>
void expect_is(const Given& given, TransferId id, const NaiveTransfer& naive) {
  EXPECT_EQ(given.id, id);
  EXPECT_EQ(given.request, naive.request);
  EXPECT_EQ(given.direction, naive.direction);
  EXPECT_EQ(given.need, naive.need);
  EXPECT_EQ(given.tier, naive.tier);
  EXPECT_TRUE(std::ranges::equal(given.blocks, naive.blocks));
  EXPECT_TRUE(std::ranges::equal(given.places, naive.places));
  if constexpr (requires { given.group; }) EXPECT_EQ(given.group, naive.group);
}

// Compares each query with the naive ledger. Returns the number of fences.
std::size_t expect_same(const OpenTransfers& open, const std::map<TransferId, NaiveTransfer>& naive, Random& random) {
  EXPECT_EQ(open.num_open(), naive.size());
  EXPECT_EQ(open.num_left(), kMostOpen - naive.size());
  const auto is_needed = [](const auto& one) { return one.second.is_load() && one.second.need != TransferNeed::nothing; };
  EXPECT_EQ(open.num_needed(), static_cast<std::size_t>(std::ranges::count_if(naive, is_needed)));
  EXPECT_TRUE(std::ranges::equal(open.all(), naive, {}, &OpenTransfers::Entry::id, [](const auto& one) { return one.first; }));
  for (TransferId id{0}; id <= open.next_id(); ++id.value) {
    const OpenTransfers::Entry* entry = open.find(id);
    EXPECT_EQ(entry != nullptr, naive.contains(id)) << id.value;
    if (entry != nullptr && naive.contains(id)) expect_is(*entry, id, naive.at(id));
  }
  std::size_t num_fences = 0;
  const TransferId first_new{open.next_id().value - std::min<std::uint64_t>(open.next_id().value, random.below(4))};
  const TransferId known[] = {TransferId{random.below(open.next_id().value + 1)}};  // is already a fence
  for (BlockId block{1}; block.value < kLedgerBlocks; ++block.value) {
    std::vector<TransferId> fences(std::begin(known), std::end(known)), wanted = fences;
    open.add_fences(block, first_new, fences);
    for (const auto& [id, transfer] : naive)
      if (transfer.touches(block) && (id < first_new || !transfer.is_load()) && id != known[0]) wanted.push_back(id);
    EXPECT_EQ(fences, wanted);
    num_fences += fences.size() - 1;
    EXPECT_EQ(open.is_being_loaded(block),
              std::ranges::any_of(naive, [&](const auto& one) { return one.second.is_load() && one.second.touches(block); }));
  }
  open.check_invariants();
  return num_fences;
}

TEST(OpenTransfersTest, AgreesWithANaiveLedgerOnRandomHistories) {
  std::size_t num_refused = 0, num_fences = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    OpenTransfers open(kLedgerBlocks, kMostOpen);
    std::map<TransferId, NaiveTransfer> naive;
    for (int event = 0; event < 200; ++event) {
      if (random.chance(0.5)) {
        const NaiveTransfer given = random_transfer(random);
        const TransferId next = open.next_id();
        const auto opened = open.open({.id = {},
                                       .request = given.request,
                                       .direction = given.direction,
                                       .need = given.need,
                                       .group = given.group,
                                       .tier = given.tier,
                                       .blocks = given.blocks,
                                       .places = given.places});
        ASSERT_EQ(opened.has_value(), naive.size() < kMostOpen);
        ASSERT_EQ(open.next_id().value, next.value + (opened ? 1 : 0));
        num_refused += opened ? 0 : 1;
        if (opened) expect_is(*opened, next, given);
        if (opened) naive[next] = given;
      } else if (!naive.empty()) {
        const auto ended = std::next(naive.begin(), static_cast<std::ptrdiff_t>(random.below(naive.size())));
        open.close(ended->first);
        naive.erase(ended);
      }
      num_fences += expect_same(open, naive, random);
      ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed << ", event " << event;
    }
  }
  EXPECT_GT(num_refused, 25U) << "too few refused transfers";
  EXPECT_GT(num_fences, 10000U);
}

// This connector transfers blocks that the requests hold when the plan is made.
class Planner final : public ScriptedConnector {
 public:
  struct Wanted {
    RequestId request;
    TransferDirection direction;
    std::uint32_t first = 0, count = 0;  // range in the blocks of the request
  };
  std::vector<Wanted> wanted;  // transfers of the next plan

  void allocated(const RequestView& request, GroupBlocks groups, std::uint32_t) override {
    blocks_[request.id].assign(groups[0].begin(), groups[0].end());
  }
  void plan_transfers(const StepPlan& plan, TransferList& list) override {
    for (const Wanted& w : std::exchange(wanted, {}))
      transfers.push_back(transfer_of(w.request, std::span(blocks_.at(w.request)).subspan(w.first, w.count), w.direction));
    ScriptedConnector::plan_transfers(plan, list);
  }

 private:
  std::map<RequestId, std::vector<BlockId>> blocks_;
};

CoreConfig transfers_config(std::uint32_t num_blocks) {
  CoreConfig config = sync_config(num_blocks);
  config.kv_load_failure = KvLoadFailurePolicy::recompute;
  return config;
}

// Holds a core in which a request of 8 tokens waits for the load of its first 4 tokens.
struct Waiting {
  explicit Waiting(std::uint32_t num_transfers = 1) : d(transfers_config(16), {.connector = &planner}) {
    planner.matches[RequestId{1}] = {.num_tokens = 4, .load_async = true};
    d.add(1, 8, 2);
    // The blocks are known only when the plan is made, so all transfers start at the first block.
    for (std::uint32_t i = 0; i < num_transfers; ++i)
      planner.wanted.push_back({RequestId{1}, TransferDirection::load, 0, i == 0 ? 1U : 0U});
    const StepPlan& plan = d.plan();
    EXPECT_EQ(plan.transfers.size(), num_transfers);
    step = plan.step;
    EXPECT_TRUE(plan.scheduled.empty());
    planner.matches.clear();
  }
  Planner planner;
  CoreDriver d;
  StepId step;
};

TEST(CoreTransfers, RunARequestAfterItsLoadsAreComplete) {
  Waiting w(2);
  const TransferCompletion first[] = {{.transfer = *w.planner.ids[0]}};
  w.d.apply({}, {.completions = first});
  EXPECT_EQ(w.d.core->counters().num_open_transfers, 1U);
  EXPECT_TRUE(w.d.plan().scheduled.empty()) << "the other load is still open";
  const TransferCompletion second[] = {{.transfer = *w.planner.ids[1]}};
  w.d.apply({}, {.completions = second});
  const StepPlan& plan = w.d.plan();
  ASSERT_EQ(plan.scheduled.size(), 1U);
  EXPECT_EQ(plan.scheduled[0].num_computed_tokens, 4U);
  EXPECT_EQ(w.planner.over.size(), 2U);
  w.d.apply();
}

TEST(CoreTransfers, RecomputeTokensWhoseLoadFailed) {
  Waiting w;
  const TransferCompletion failed[] = {{.transfer = *w.planner.ids[0], .outcome = TransferOutcome::failed}};
  w.d.apply({}, {.completions = failed});
  const StepPlan& plan = w.d.plan();
  ASSERT_EQ(plan.scheduled.size(), 1U);
  EXPECT_EQ(plan.scheduled[0].num_computed_tokens, 0U);
  w.d.apply();
}

TEST(CoreTransfers, RefuseTheCompletionOfATransferThatIsNotOpen) {
  Waiting w;
  const TransferId id = *w.planner.ids[0];
  const BlockId foreign[] = {BlockId{15}};
  const auto field = [&](std::vector<TransferCompletion> completions) {
    const StepResult result{.step = w.step, .completions = completions};
    return w.d.core->apply(result).error().field;
  };
  EXPECT_EQ(field({{.transfer = TransferId{99}}}), "completions");
  EXPECT_EQ(field({{.transfer = id}, {.transfer = id}}), "completions");
  EXPECT_EQ(field({{.transfer = id, .outcome = TransferOutcome::failed, .bad_blocks = foreign}}), "completions");
  EXPECT_TRUE(w.planner.over.empty());
  const TransferCompletion good[] = {{.transfer = id}};
  w.d.apply({}, {.completions = good});
  EXPECT_EQ(w.planner.over.size(), 1U);
}

TEST(CoreTransfers, KeepBlocksOfAFinishedRequestUntilItsLastTransferIsComplete) {
  Planner planner;
  planner.keeps_blocks = {RequestId{1}};
  CoreDriver d(transfers_config(16), {.connector = &planner});
  d.add(1, 8, 1);
  d.step();
  EXPECT_EQ(d.core->counters().num_awaiting_transfers, 1U);
  planner.wanted = {{RequestId{1}, TransferDirection::store, 0, 1}, {RequestId{1}, TransferDirection::store, 1, 1}};
  d.plan();
  const TransferCompletion second[] = {{.transfer = *planner.ids[1]}};
  d.apply({}, {.completions = second});
  EXPECT_FALSE(d.core->all_blocks_free());
  d.plan();
  const TransferCompletion first[] = {{.transfer = *planner.ids[0]}};
  d.apply({}, {.completions = first});
  EXPECT_TRUE(d.core->all_blocks_free());
  EXPECT_EQ(d.core->counters().num_awaiting_transfers, 0U);
}

// A transfer that completes between the end of the request and the next plan does not free the blocks.
TEST(CoreTransfers, KeepBlocksForATransferInTheNextPlan) {
  Planner planner;
  planner.keeps_blocks = {RequestId{1}};
  CoreDriver d(transfers_config(16), {.connector = &planner});
  d.add(1, 8, 3);
  planner.wanted = {{RequestId{1}, TransferDirection::store, 0, 1}};
  d.step();
  d.plan();
  d.core->finish(RequestId{1}, RequestStatus::finished_aborted);
  const TransferCompletion earlier[] = {{.transfer = *planner.ids[0]}};
  d.apply({{1, {}}}, {.completions = earlier});
  EXPECT_FALSE(d.core->all_blocks_free());
  planner.wanted = {{RequestId{1}, TransferDirection::store, 1, 1}};
  d.plan();
  const TransferCompletion last[] = {{.transfer = *planner.ids[1]}};
  d.apply({}, {.completions = last});
  EXPECT_TRUE(d.core->all_blocks_free());
}

// The only transfer of the request is complete before the request ends. vLLM's workers report this when they are notified of the end.
TEST(CoreTransfers, FreeBlocksWithTheResultOfThePlanThatListsTheFinishedRequest) {
  for (const bool is_async : {false, true}) {
    Planner planner;
    planner.keeps_blocks = {RequestId{1}};
    CoreConfig config = is_async ? async_config(16) : sync_config(16);
    CoreDriver d(config, {.connector = &planner});
    d.add(1, 8, 8);
    planner.wanted = {{RequestId{1}, TransferDirection::store, 0, 1}};
    d.step();
    if (is_async) d.plan();
    d.plan();
    const TransferCompletion over[] = {{.transfer = *planner.ids[0]}};
    d.apply({}, {.completions = over});
    d.core->finish(RequestId{1}, RequestStatus::finished_aborted);
    d.plan();
    if (is_async) {
      d.apply();
      EXPECT_FALSE(d.core->all_blocks_free()) << "that plan does not list the finished request";
    }
    EXPECT_TRUE(planner.sent_requests.empty());
    d.apply();
    EXPECT_TRUE(d.core->all_blocks_free());
    EXPECT_EQ(planner.sent_requests, Ids({1}));
  }
}

// The connector requests the transfer again, or gives it up.
TEST(CoreTransfers, KeepBlocksOfARefusedTransferWhileTheConnectorRetries) {
  for (const bool gives_up : {false, true}) {
    Planner planner;
    planner.keeps_blocks = {RequestId{1}};
    CoreConfig config = transfers_config(16);
    config.limits.max_open_transfers = 1;
    CoreDriver d(config, {.connector = &planner});
    d.add(1, 8, 1);
    d.step();
    planner.wanted.assign(2, {RequestId{1}, TransferDirection::store, 0, 1});
    d.plan();
    const TransferCompletion first[] = {{.transfer = *planner.ids[0]}};
    d.apply({}, {.completions = first});
    EXPECT_FALSE(d.core->all_blocks_free()) << "the other transfer was refused";
    if (!gives_up) planner.wanted = {{RequestId{1}, TransferDirection::store, 0, 1}};
    d.plan();
    d.apply();
    EXPECT_EQ(d.core->all_blocks_free(), gives_up);
    if (gives_up) continue;
    d.plan();
    const TransferCompletion second[] = {{.transfer = *planner.ids[2]}};
    d.apply({}, {.completions = second});
    EXPECT_TRUE(d.core->all_blocks_free());
  }
}

TEST(CoreTransfers, FenceATransferWhenAPlanWritesToItsBlocks) {
  Planner planner;
  CoreConfig config = transfers_config(4);
  config.prefix_cache.enable_prefix_caching = false;
  CoreDriver d(config, {.connector = &planner});
  d.add(1, 8, 1);
  d.plan();
  planner.ids.clear();
  d.apply();
  d.add(2, 8, 3);
  planner.wanted = {};
  EXPECT_TRUE(d.plan().fences.empty());
  d.apply();
  planner.wanted = {{RequestId{2}, TransferDirection::store, 0, 2}};
  EXPECT_TRUE(d.plan().fences.empty()) << "a store of blocks that stay is no fence";
  d.apply();
  d.core->finish(RequestId{2}, RequestStatus::finished_aborted);
  EXPECT_TRUE(d.core->all_blocks_free()) << "the connector keeps no blocks";
  d.add(3, 8, 1);
  const StepPlan& plan = d.plan();
  ASSERT_EQ(plan.fences.size(), 1U);
  EXPECT_EQ(plan.fences[0], *planner.ids[0]);
  d.apply();
}

// A request that waits for its blocks is not scheduled in the plan, but the load that begins with the plan writes to them.
TEST(CoreTransfers, FenceAStoreWhenALoadWritesToItsBlocks) {
  Planner planner;
  CoreConfig config = transfers_config(4);
  config.prefix_cache.enable_prefix_caching = false;
  CoreDriver d(config, {.connector = &planner});
  d.add(1, 8, 3);
  planner.wanted = {{RequestId{1}, TransferDirection::store, 0, 2}};
  d.step();
  d.core->finish(RequestId{1}, RequestStatus::finished_aborted);
  planner.matches[RequestId{2}] = {.num_tokens = 8, .load_async = true};
  planner.wanted = {{RequestId{2}, TransferDirection::load, 0, 2}};
  d.add(2, 10, 3);
  const StepPlan& plan = d.plan();
  EXPECT_TRUE(plan.table_deltas.empty());
  ASSERT_EQ(plan.fences.size(), 1U);
  EXPECT_EQ(plan.fences[0], *planner.ids[0]);
  d.apply();
}

TEST(CoreTransfers, IgnoreAFailedStoreWithSeveralGroups) {
  Planner planner;
  CoreConfig config = transfers_config(16);
  SlidingWindowSpec window;
  window.block_size = kBlockSize;
  window.sliding_window = 8;
  config.kv.groups.push_back({.layer_names = {"window"}, .spec = window, .layer_specs = {}});
  CoreDriver d(config, {.connector = &planner});
  d.add(1, 8, 3);
  planner.wanted = {{RequestId{1}, TransferDirection::store, 0, 1}};
  d.step();
  d.plan();
  const TransferCompletion failed[] = {{.transfer = *planner.ids[0], .outcome = TransferOutcome::failed}};
  EXPECT_EQ(d.apply({}, {.completions = failed}).updates.size(), 1U);
  EXPECT_EQ(planner.over.size(), 1U);
}

// The loaded blocks of two requests fill the cache, and each request needs one more block.
TEST(CoreTransfers, ReleaseLoadedBlocksWhenNothingRuns) {
  for (const bool give_way : {false, true}) {
    Planner planner;
    CoreConfig config = transfers_config(7);
    config.fixes.loaded_give_way = give_way;
    config.scheduler.reserve_full_isl = false;
    config.prefix_cache.enable_prefix_caching = false;
    CoreDriver d(config, {.connector = &planner});
    for (const std::uint64_t id : {1U, 2U}) {
      planner.matches[RequestId{id}] = {.num_tokens = 12, .load_async = true};
      d.add(id, 13, 2);
      planner.wanted.push_back({RequestId{id}, TransferDirection::load, 0, 3});
    }
    d.plan();
    planner.matches.clear();
    const TransferCompletion over[] = {{.transfer = *planner.ids[0]}, {.transfer = *planner.ids[1]}};
    d.apply({}, {.completions = over});
    d.plan();
    EXPECT_EQ(d.scheduled(1) + d.scheduled(2), give_way ? 1U : 0U) << "the token after the loaded tokens";
    d.apply();
    if (!give_way) continue;
    for (int i = 0; i < 10 && d.core->has_work(); ++i) d.step();
    EXPECT_TRUE(d.core->all_blocks_free());
  }
}

// Between two inputs a session holds the blocks that it continues from, and a connector may store them.
TEST(CoreTransfers, KeepBlocksOfASessionWhenLoadedBlocksAreReleased) {
  Planner planner;
  CoreConfig config = transfers_config(7);
  config.fixes.loaded_give_way = true;
  config.scheduler.reserve_full_isl = false;
  config.prefix_cache.enable_prefix_caching = false;
  CoreDriver d(config, {.connector = &planner});
  planner.matches[RequestId{2}] = {.num_tokens = 12, .load_async = true};
  planner.wanted.push_back({RequestId{2}, TransferDirection::load, 0, 3});
  d.add(2, 13, 2);
  const Tokens prompt = CoreDriver::prompt(1, 9);
  NewRequest session = CoreDriver::request(1, prompt, 2);
  session.resumable = true;
  d.add(session);
  d.plan();
  planner.matches.clear();
  const TransferCompletion over[] = {{.transfer = *planner.ids[0]}};
  d.apply({{1, {kEos}}}, {.completions = over});
  ASSERT_EQ(d.view(1).status, RequestStatus::waiting_for_input);
  const auto blocks = d.blocks(1);
  ASSERT_EQ(blocks.size(), 3U);
  d.plan();
  EXPECT_EQ(d.scheduled(2), 0U) << "no block is free, and the loaded request needs one";
  d.apply();
  EXPECT_EQ(d.view(1).num_computed_tokens, 9U);
  EXPECT_EQ(d.blocks(1), blocks);
  const Tokens more = {61};
  const SessionInput input{.tokens = more, .eos_ids = kEosIds};
  ASSERT_TRUE(d.core->continue_session(RequestId{1}, &input).has_value());
  EXPECT_EQ(d.view(1).tokens.size(), 10U);
  d.core->finish(RequestId{2}, RequestStatus::finished_aborted);
  d.plan();
  EXPECT_EQ(d.scheduled(1), 1U);
  d.apply();
}

TEST(CoreTransfers, RefuseTransfersBeyondTheLimit) {
  Planner planner;
  CoreConfig config = transfers_config(16);
  config.limits.max_open_transfers = 2;
  CoreDriver d(config, {.connector = &planner});
  d.add(1, 8, 4);
  planner.wanted.assign(3, {RequestId{1}, TransferDirection::store, 0, 0});
  EXPECT_EQ(d.plan().transfers.size(), 2U);
  EXPECT_FALSE(planner.ids[2].has_value());
  d.apply();
}

}  // namespace
}  // namespace quire::test
