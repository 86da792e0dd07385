// A checkpoint is refused whose plans, jobs or swapped blocks disagree with what they are of: a field is spoiled, one at a time, before it
// is written.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "core/schedule/core_driver.h"
#include "core/schedule/requests/turns.h"
#include "core/schedule/state.h"

namespace quire {
namespace {

using test::CoreDriver;

constexpr std::int32_t kMostTokensOfARequest = 1 << 30;

std::string restore_error(const CoreDriver& d, const CoreConfig& config) {
  const auto restored = Core::restore(config, {}, d.core->checkpoint());
  return restored ? std::string() : restored.error().to_string();
}

struct PlanSpoiling {
  const char* rule;
  std::function<void(Core::State&, PlanArena&)> spoil;
};

TEST(SpoiledPlan, IsRefusedByTheRuleThatItBreaks) {
  const std::vector<PlanSpoiling> spoilings = {
      {"plans follow each other", [](Core::State&, PlanArena& a) { a.plan_.step.value = 7; }},
      {"a plan schedules its requests", [](Core::State&, PlanArena& a) { a.scheduled_[0].id = RequestId{2}; }},
      {"a plan schedules its requests", [](Core::State&, PlanArena& a) { a.scheduled_[0].slot = Slot{8}; }},
      {"a plan gives tokens", [](Core::State&, PlanArena& a) { a.scheduled_[0].num_tokens = 0; }},
      {"a plan gives tokens", [](Core::State&, PlanArena& a) { a.scheduled_[0].num_tokens = kMostTokensOfARequest + 1; }},
      {"a plan gives tokens", [](Core::State&, PlanArena& a) { a.scheduled_[0].num_computed_tokens = kMostTokensOfARequest + 1; }},
      {"tables are of groups and slots", [](Core::State&, PlanArena& a) { a.table_deltas_[0].group = 1; }},
      {"tables are of groups and slots", [](Core::State&, PlanArena& a) { a.table_deltas_[0].slot = Slot{8}; }},
      {"tables are of blocks of the pool", [](Core::State&, PlanArena& a) { a.blocks_[0] = BlockId{32}; }},
      {"copies are of blocks of the pool", [](Core::State&, PlanArena& a) { a.copies_ = {{RequestId{1}, 1, BlockId{1}, BlockId{2}}}; }},
      {"copies are of blocks of the pool", [](Core::State&, PlanArena& a) { a.copies_ = {{RequestId{1}, 0, BlockId{32}, BlockId{2}}}; }},
      {"copies are of blocks of the pool", [](Core::State&, PlanArena& a) { a.copies_ = {{RequestId{1}, 0, BlockId{1}, BlockId{32}}}; }},
      {"zeroed blocks are of the pool", [](Core::State&, PlanArena& a) { a.blocks_to_zero_ = {BlockId{32}}; }},
      {"a number for each group", [](Core::State&, PlanArena& a) { a.common_prefix_blocks_ = {0, 0}; }},
      {"a slot is one of the batch", [](Core::State&, PlanArena& a) { a.admitted_[0].slot = Slot{8}; }},
      {"a slot is one of the batch", [](Core::State&, PlanArena& a) { a.released_ = {Slot{8}}; }},
      {"transfers are of groups",
       [](Core::State&, PlanArena& a) { a.transfers_ = {{.id = {}, .request = RequestId{1}, .group = 1, .blocks = {}, .places = {}}}; }},
      {"parts of a plan lie in it", [](Core::State&, PlanArena& a) { a.num_admitted_tokens_.push_back(0); }},
      {"parts of a plan lie in it", [](Core::State&, PlanArena& a) { a.entries_.emplace_back(); }},
      {"parts of a plan lie in it", [](Core::State&, PlanArena& a) { a.requests_.clear(); }},
      {"parts of a plan lie in it", [](Core::State&, PlanArena& a) { a.delta_ranges_.clear(); }},
      {"parts of a plan lie in it", [](Core::State&, PlanArena& a) { ++a.delta_ranges_[0].size; }},
      {"parts of a plan lie in it", [](Core::State&, PlanArena& a) { a.delta_ranges_[0].begin = UINT32_MAX; }},
      {"parts of a plan lie in it", [](Core::State&, PlanArena& a) { a.entries_[0].drafts = {0, 1}; }},
      {"parts of a plan lie in it", [](Core::State&, PlanArena& a) { a.entries_[0].drafts = {1, 0}; }},
      {"parts of a plan lie in it", [](Core::State&, PlanArena& a) { a.entries_[0].encoder_inputs = {0, 1}; }},
      {"parts of a plan lie in it", [](Core::State&, PlanArena& a) { a.entries_[0].num_invalid_drafts = 1; }},
      {"no more plans are outstanding than may be", [](Core::State& s, PlanArena&) { s.plans.size_ = 2; }},
      {"who shares is there once", [](Core::State& s, PlanArena&) { s.forks.sharing_.assign(2, s.table.find_any(RequestId{1})); }},
      {"families are numbered", [](Core::State& s, PlanArena&) { s.forks.families_ = {{1, 1}}; }},
      {"a request has tokens", [](Core::State& s, PlanArena&) { s.table.find_any(RequestId{1})->tokens.clear(); }},
      {"who is gone is there once", [](Core::State& s, PlanArena&) { s.ended.gone_ = {s.table.find_any(RequestId{1})}; }},
  };
  for (std::size_t i = 0; i < spoilings.size(); ++i) {
    CoreDriver d(test::sync_config());
    d.add(1, 8, 20);
    d.plan();
    Core::State& s = *d.core->state_;
    ASSERT_EQ(restore_error(d, test::sync_config()), "");
    spoilings[i].spoil(s, s.plans.at(0));
    const std::string error = restore_error(d, test::sync_config());
    EXPECT_NE(error.find(spoilings[i].rule), std::string::npos) << i << ": " << error;
  }
}

// What lies at a border of the pool or the batch is in it.
TEST(SpoiledPlan, MayNameTheLastOfAll) {
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
    CoreDriver d(test::sync_config());
    d.add(1, 8, 20);
    d.plan();
    borders[i](d.core->state_->plans.at(0));
    EXPECT_EQ(restore_error(d, test::sync_config()), "") << i;
  }
}

TEST(SpoiledJobs, CountTheirRequestsAndPinOneOfTheirs) {
  const CoreConfig config = test::continuum_config(32);
  const auto of_spoiled = [&config](auto spoil) {
    CoreDriver d(config);
    test::add_turn(d, 1, 8, {.job = "job", .tool = "ls"});
    d.step();
    test::add_turn(d, 2, 8, {.job = "other", .tool = "ls"});
    EXPECT_EQ(restore_error(d, config), "");
    EXPECT_EQ(test::pinned(d), test::Ids{1});
    Core::State& s = *d.core->state_;
    spoil(s);
    return restore_error(d, config);
  };
  const auto job_of = [](Core::State& s, std::uint64_t id) { return s.table.find_any(RequestId{id})->job; };
  EXPECT_NE(of_spoiled([&](Core::State& s) { ++job_of(s, 2)->num_requests; }).find("the requests of a job are counted"), std::string::npos);
  const char* const of_job = "a pin is of a request of its job";
  EXPECT_NE(of_spoiled([](Core::State& s) { s.jobs.agent().pins.pins_[0].request = RequestId{9}; }).find(of_job), std::string::npos);
  EXPECT_NE(of_spoiled([&](Core::State& s) { s.jobs.agent().pins.pins_[0].job = job_of(s, 2); }).find(of_job), std::string::npos);
  EXPECT_NE(of_spoiled([](Core::State& s) { s.table.find_any(RequestId{1})->holders = 0; }).find(of_job), std::string::npos);
  EXPECT_NE(of_spoiled([](Core::State& s) {
              auto& pins = s.jobs.agent().pins.pins_;
              pins.push_back(pins[0]);
            }).find("one pin per job"),
            std::string::npos);
}

TEST(SpoiledSwap, BlocksOutsideAreTheirRequestsAndOfThePool) {
  CoreConfig config = test::sync_config(8);
  config.swap = {.num_swap_places = 8, .swap_choice = SwapChoice::always};
  const auto of_spoiled = [&config](auto spoil) {
    CoreDriver d(config);
    d.add(1, 11, 12);
    d.add(2, 11, 12);
    while (d.core->counters().num_swapped_out == 0) d.step();
    EXPECT_EQ(restore_error(d, config), "");
    spoil(*d.core->state_->swap.swapped_.at(0));
    return restore_error(d, config);
  };
  EXPECT_NE(of_spoiled([](SwappedBlocks& b) { b.places.push_back(7); }).find("a swapped block has a place outside"), std::string::npos);
  EXPECT_NE(of_spoiled([](SwappedBlocks& b) { b.blocks[0].group = 1; }).find("swapped blocks are of groups"), std::string::npos);
  EXPECT_NE(of_spoiled([](SwappedBlocks& b) { b.blocks[0].block = BlockId{8}; }).find("swapped blocks are of groups"), std::string::npos);
  EXPECT_NE(of_spoiled([](SwappedBlocks& b) { b.blocks[0].index = 90; }).find("a swapped block has a place in its request's list"),
            std::string::npos);
}

}  // namespace
}  // namespace quire
