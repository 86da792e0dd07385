// Checkpoints with inconsistent plans, jobs or swapped blocks must be refused. Each case changes one member before the checkpoint is
// written.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "core/schedule/core_driver.h"
#include "core/schedule/requests/turns.h"
#include "core/schedule/state.h"

namespace quire::test {
namespace {

constexpr std::int32_t kMostTokensOfARequest = 1 << 30;

std::string restore_error(const CoreDriver& d, const CoreConfig& config) {
  const auto restored = Core::restore(config, {}, d.core->checkpoint());
  return restored ? std::string() : restored.error().to_string();
}

struct PlanCorruption {
  const char* rule;
  std::function<void(Core::State&, PlanArena&)> corrupt;
};

TEST(CorruptedPlan, IsRefusedByTheBrokenRule) {
  const std::vector<PlanCorruption> corruptions = {
      {"plans have consecutive steps", [](Core::State&, PlanArena& a) { a.plan_.step.value = 7; }},
      {"a plan entry refers to its request and a slot of the batch", [](Core::State&, PlanArena& a) { a.scheduled_[0].id = RequestId{2}; }},
      {"a plan entry refers to its request and a slot of the batch", [](Core::State&, PlanArena& a) { a.scheduled_[0].slot = Slot{8}; }},
      {"a plan entry has tokens, and not too many", [](Core::State&, PlanArena& a) { a.scheduled_[0].num_tokens = 0; }},
      {"a plan entry has tokens, and not too many",
       [](Core::State&, PlanArena& a) { a.scheduled_[0].num_tokens = kMostTokensOfARequest + 1; }},
      {"a plan entry has tokens, and not too many",
       [](Core::State&, PlanArena& a) { a.scheduled_[0].num_computed_tokens = kMostTokensOfARequest + 1; }},
      {"block table updates refer to groups and slots", [](Core::State&, PlanArena& a) { a.table_deltas_[0].group = 1; }},
      {"block table updates refer to groups and slots", [](Core::State&, PlanArena& a) { a.table_deltas_[0].slot = Slot{8}; }},
      {"block table updates contain blocks of the pool", [](Core::State&, PlanArena& a) { a.blocks_[0] = BlockId{32}; }},
      {"copies are between blocks of the pool",
       [](Core::State&, PlanArena& a) { a.copies_ = {{RequestId{1}, 1, BlockId{1}, BlockId{2}}}; }},
      {"copies are between blocks of the pool",
       [](Core::State&, PlanArena& a) { a.copies_ = {{RequestId{1}, 0, BlockId{32}, BlockId{2}}}; }},
      {"copies are between blocks of the pool",
       [](Core::State&, PlanArena& a) { a.copies_ = {{RequestId{1}, 0, BlockId{1}, BlockId{32}}}; }},
      {"zeroed blocks are in the pool", [](Core::State&, PlanArena& a) { a.blocks_to_zero_ = {BlockId{32}}; }},
      {"there is a number of common prefix blocks for each group", [](Core::State&, PlanArena& a) { a.common_prefix_blocks_ = {0, 0}; }},
      {"the slot of an admitted request is in the batch", [](Core::State&, PlanArena& a) { a.admitted_[0].slot = Slot{8}; }},
      {"a slot released by a plan is in the batch", [](Core::State&, PlanArena& a) { a.released_ = {Slot{8}}; }},
      {"transfers belong to cache groups",
       [](Core::State&, PlanArena& a) { a.transfers_ = {{.id = {}, .request = RequestId{1}, .group = 1, .blocks = {}, .places = {}}}; }},
      {"the parts of a plan lie within its lists", [](Core::State&, PlanArena& a) { a.num_admitted_tokens_.push_back(0); }},
      {"the parts of a plan lie within its lists", [](Core::State&, PlanArena& a) { a.entries_.emplace_back(); }},
      {"the parts of a plan lie within its lists", [](Core::State&, PlanArena& a) { a.requests_.clear(); }},
      {"the parts of a plan lie within its lists", [](Core::State&, PlanArena& a) { a.delta_ranges_.clear(); }},
      {"the parts of a plan lie within its lists", [](Core::State&, PlanArena& a) { ++a.delta_ranges_[0].size; }},
      {"the parts of a plan lie within its lists", [](Core::State&, PlanArena& a) { a.delta_ranges_[0].begin = UINT32_MAX; }},
      {"the parts of a plan lie within its lists", [](Core::State&, PlanArena& a) { a.entries_[0].drafts = {0, 1}; }},
      {"the parts of a plan lie within its lists", [](Core::State&, PlanArena& a) { a.entries_[0].drafts = {1, 0}; }},
      {"the parts of a plan lie within its lists", [](Core::State&, PlanArena& a) { a.entries_[0].encoder_inputs = {0, 1}; }},
      {"the parts of a plan lie within its lists", [](Core::State&, PlanArena& a) { a.entries_[0].num_invalid_drafts = 1; }},
      {"the number of outstanding plans is within the limit", [](Core::State& s, PlanArena&) { s.plans.size_ = 2; }},
      {"a request that shares blocks is listed once",
       [](Core::State& s, PlanArena&) { s.forks.sharing_.assign(2, s.table.find_any(RequestId{1})); }},
      {"family ids do not exceed the last id", [](Core::State& s, PlanArena&) { s.forks.families_ = {{1, 1}}; }},
      {"a request has tokens, and not too many", [](Core::State& s, PlanArena&) { s.table.find_any(RequestId{1})->tokens.clear(); }},
      {"an ended request is unknown and is listed once",
       [](Core::State& s, PlanArena&) { s.ended.gone_ = {s.table.find_any(RequestId{1})}; }},
  };
  for (std::size_t i = 0; i < corruptions.size(); ++i) {
    CoreDriver d(sync_config());
    d.add(1, 8, 20);
    d.plan();
    Core::State& s = *d.core->state_;
    ASSERT_EQ(restore_error(d, sync_config()), "");
    corruptions[i].corrupt(s, s.plans.at(0));
    const std::string error = restore_error(d, sync_config());
    EXPECT_NE(error.find(corruptions[i].rule), std::string::npos) << i << ": " << error;
  }
}

// The last block of the pool and the last row of the batch are valid.
TEST(CorruptedPlan, AcceptsTheLastBlockAndRow) {
  const std::vector<std::function<void(PlanArena&)>> borders = {
      [](PlanArena& a) { a.scheduled_[0].slot = Slot{7}; },
      [](PlanArena& a) { a.scheduled_[0].num_computed_tokens = kMostTokensOfARequest; },
      [](PlanArena& a) { a.table_deltas_[0].slot = Slot{7}; },
      [](PlanArena& a) { a.blocks_[0] = BlockId{31}; },
      [](PlanArena& a) { a.copies_ = {{RequestId{1}, 0, BlockId{31}, BlockId{30}}}; },
      [](PlanArena& a) { a.copies_ = {{RequestId{1}, 0, BlockId{30}, BlockId{31}}}; },
      [](PlanArena& a) { a.blocks_to_zero_ = {BlockId{31}}; },
      [](PlanArena& a) { a.admitted_[0].slot = Slot{7}; },
      [](PlanArena& a) { a.released_ = {Slot{7}}; },
  };
  for (std::size_t i = 0; i < borders.size(); ++i) {
    CoreDriver d(sync_config());
    d.add(1, 8, 20);
    d.plan();
    borders[i](d.core->state_->plans.at(0));
    EXPECT_EQ(restore_error(d, sync_config()), "") << i;
  }
}

TEST(CorruptedJobs, AreRefusedWhenRequestsOrPinsDisagree) {
  const CoreConfig config = continuum_config(32);
  const auto error_after = [&config](auto corrupt) {
    CoreDriver d(config);
    add_turn(d, 1, 8, {.job = "job", .tool = "ls"});
    d.step();
    add_turn(d, 2, 8, {.job = "other", .tool = "ls"});
    EXPECT_EQ(restore_error(d, config), "");
    EXPECT_EQ(pinned(d), Ids{1});
    Core::State& s = *d.core->state_;
    corrupt(s);
    return restore_error(d, config);
  };
  const auto job_of = [](Core::State& s, std::uint64_t id) { return s.table.find_any(RequestId{id})->job; };
  EXPECT_NE(error_after([&](Core::State& s) { ++job_of(s, 2)->num_requests; }).find("the number of requests of each job is correct"),
            std::string::npos);
  const char* const of_job = "a pin belongs to a request of its job";
  EXPECT_NE(error_after([](Core::State& s) { s.jobs.agent().pins.pins_[0].request = RequestId{9}; }).find(of_job), std::string::npos);
  EXPECT_NE(error_after([&](Core::State& s) { s.jobs.agent().pins.pins_[0].job = job_of(s, 2); }).find(of_job), std::string::npos);
  EXPECT_NE(error_after([](Core::State& s) { s.table.find_any(RequestId{1})->holders = 0; }).find(of_job), std::string::npos);
  EXPECT_NE(error_after([](Core::State& s) {
              auto& pins = s.jobs.agent().pins.pins_;
              pins.push_back(pins[0]);
            }).find("a job has at most one pin"),
            std::string::npos);
}

TEST(CorruptedSwap, IsRefusedWhenBlocksHaveNoRequestOrNoSlot) {
  CoreConfig config = sync_config(8);
  config.swap = {.num_swap_slots = 8, .swap_choice = SwapChoice::always};
  const auto error_after = [&config](auto corrupt) {
    CoreDriver d(config);
    d.add(1, 11, 12);
    d.add(2, 11, 12);
    while (d.core->counters().num_swapped_out == 0) d.step();
    EXPECT_EQ(restore_error(d, config), "");
    corrupt(*d.core->state_->swap.swapped_.at(0));
    return restore_error(d, config);
  };
  EXPECT_NE(error_after([](SwappedBlocks& b) { b.places.push_back(7); }).find("each swapped block has a swap slot"), std::string::npos);
  EXPECT_NE(error_after([](SwappedBlocks& b) { b.blocks[0].group = 1; }).find("swapped blocks belong to cache groups and the pool"),
            std::string::npos);
  EXPECT_NE(
      error_after([](SwappedBlocks& b) { b.blocks[0].block = BlockId{8}; }).find("swapped blocks belong to cache groups and the pool"),
      std::string::npos);
  EXPECT_NE(
      error_after([](SwappedBlocks& b) { b.blocks[0].index = 90; }).find("a swapped block has an index in the block list of its request"),
      std::string::npos);
}

}  // namespace
}  // namespace quire::test
