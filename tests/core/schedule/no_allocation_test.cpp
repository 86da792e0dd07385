// Steps that neither admit nor finish requests must not allocate memory. The tests cover plain steps, copies for forks, draft tokens,
// tokens in flight, and statistics.
#include <gtest/gtest.h>

#include <vector>

#include "core/schedule/core_driver.h"
#include "core/schedule/harness.h"
#include "core/schedule/moves/open_transfers.h"
#include "support/count_allocations.h"

namespace quire::test {
namespace {

void decode(Core& core, int num_steps, std::vector<SampledToken>& sampled) {
  for (int step = 0; step < num_steps; ++step) {
    const StepPlan& plan = core.schedule();
    sampled.clear();
    for (const ScheduledRequest& s : plan.scheduled)
      if (s.samples) sampled.push_back({s.id, static_cast<TokenId>(step % 97)});
    ASSERT_TRUE(core.apply({plan.step, sampled}));
  }
}

std::unique_ptr<Core> core_with(std::uint64_t num_requests, std::uint32_t num_prompt_tokens, std::uint32_t max_tokens,
                                std::uint32_t num_blocks) {
  CoreConfig config;
  config.scheduler.max_num_seqs = static_cast<std::uint32_t>(num_requests);
  config.scheduler.max_model_len = 16384;
  use_one_group(config, num_blocks);
  auto core = Core::create(config).value();
  const std::vector<TokenId> prompt(num_prompt_tokens, 7);
  for (std::uint64_t id = 0; id < num_requests; ++id)
    EXPECT_TRUE(core->add({.id = RequestId{id}, .prompt = prompt, .max_tokens = max_tokens}));
  return core;
}

TEST(NoAllocation, ForTenThousandDecodeSteps) {
  if (!QUIRE_COUNTS_ALLOCATIONS) GTEST_SKIP() << "ThreadSanitizer keeps its own operator new: nothing to count";
  const auto core = core_with(16, 100, 16000, 16 * 1024 + 1);
  std::vector<SampledToken> sampled;
  sampled.reserve(16);
  decode(*core, 4, sampled);
  ASSERT_EQ(core->counters().num_running, 16U);
  const std::uint64_t before = num_allocations;
  decode(*core, 10000, sampled);
  EXPECT_EQ(num_allocations - before, 0U);
  EXPECT_EQ(sampled.size(), 16U);
}

// The forks get no row in the batch, so each parent copies the block that it shares.
TEST(NoAllocation, InAStepThatCopiesBlocks) {
  if (!QUIRE_COUNTS_ALLOCATIONS) GTEST_SKIP() << "ThreadSanitizer keeps its own operator new: nothing to count";
  const auto core = core_with(4, 6, 80, 4 * 1024 + 1);
  std::vector<SampledToken> sampled;
  sampled.reserve(4);
  decode(*core, 4, sampled);
  for (std::uint64_t id = 0; id < 4; ++id) ASSERT_TRUE(core->fork(RequestId{id}, {.id = RequestId{id + 4}}));
  const std::uint64_t before = num_allocations;
  decode(*core, 40, sampled);
  EXPECT_EQ(num_allocations - before, 0U);
  EXPECT_EQ(core->counters().num_copied_blocks, 4U);
}

// The ledger holds as many open transfers as before, with as many blocks.
TEST(NoAllocation, InALedgerOfTransfersThatHasGrown) {
  if (!QUIRE_COUNTS_ALLOCATIONS) GTEST_SKIP() << "ThreadSanitizer keeps its own operator new: nothing to count";
  OpenTransfers open(32, 8);
  const BlockId blocks[] = {BlockId{1}, BlockId{3}, BlockId{5}};
  const std::uint64_t places[] = {7, 8, 9};
  const auto open_and_close = [&] {
    for (int i = 0; i < 8; ++i) ASSERT_TRUE(open.open({.id = {}, .request = {}, .blocks = blocks, .places = places}).has_value());
    while (open.num_open() > 0) open.close(open.all().front().id);
  };
  open_and_close();
  const std::uint64_t before = num_allocations;
  for (int i = 0; i < 100; ++i) open_and_close();
  EXPECT_EQ(num_allocations - before, 0U);
  EXPECT_EQ(open.next_id(), TransferId{808});
}

constexpr std::uint64_t kNumRequests = 8;
constexpr std::uint32_t kNumDrafts = 2;

// The results use separate memory, so that only allocations of the core are counted.
class Decoding {
 public:
  explicit Decoding(CoreConfig config) {
    config.speculation.num_spec_tokens = kNumDrafts;
    config.kv.num_blocks = 8 * 2000;
    config.scheduler.max_model_len = 4000;
    core_ = Core::create(config).value();
    for (std::uint64_t id = 0; id < kNumRequests; ++id) {
      const Tokens prompt = CoreDriver::prompt(id, 5);
      EXPECT_TRUE(core_->add(CoreDriver::request(id, prompt, 3900)));
    }
    sampled_.reserve(kNumRequests * (1 + kNumDrafts));
    drafts_.reserve(kNumRequests);
    depth_ = config.limits.max_outstanding_plans;
  }

  // Accepts every second draft token.
  void run(int num_steps) {
    for (int step = 0; step < num_steps; ++step) {
      const StepPlan& plan = core_->schedule({.now = static_cast<double>(step)});
      plans_[step % 2] = &plan;
      if (depth_ == 1 || step > 0) apply(*plans_[(step + 1 - static_cast<int>(depth_)) & 1], step);
    }
    if (depth_ == 2) apply(*plans_[(num_steps - 1) % 2], num_steps);
  }

  [[nodiscard]] std::uint32_t num_running() const { return core_->counters().num_running; }

 private:
  void apply(const StepPlan& plan, int step) {
    sampled_.clear();
    drafts_.clear();
    for (const ScheduledRequest& s : plan.scheduled) {
      const std::size_t num_tokens = s.samples ? 1 + s.drafts.size() / 2 : 0;
      for (std::size_t i = 0; i < num_tokens; ++i) sampled_.push_back({s.id, static_cast<TokenId>(10 + step % 90)});
      drafts_.push_back({s.id, kDraftTokens});
    }
    ASSERT_TRUE(core_->apply({.step = plan.step, .sampled = sampled_}, {.now = static_cast<double>(step)}));
    if (depth_ == 1) core_->set_drafts(drafts_);
  }

  static constexpr TokenId kDraftTokens[kNumDrafts] = {50, 51};
  std::unique_ptr<Core> core_;
  std::vector<SampledToken> sampled_;
  std::vector<Draft> drafts_;
  const StepPlan* plans_[2] = {};
  std::uint32_t depth_ = 1;
};

void expect_none(const CoreConfig& config) {
  if (!QUIRE_COUNTS_ALLOCATIONS) GTEST_SKIP() << "ThreadSanitizer keeps its own operator new: nothing to count";
  Decoding decoding(config);
  decoding.run(20);
  ASSERT_EQ(decoding.num_running(), kNumRequests);
  const std::uint64_t before = num_allocations;
  decoding.run(1000);
  EXPECT_EQ(num_allocations - before, 0U);
  EXPECT_EQ(decoding.num_running(), kNumRequests);
}

TEST(NoAllocation, InASpeculativeStep) {
  expect_none(sync_config());
}

TEST(NoAllocation, InASpeculativeStepWithTokensInFlight) {
  expect_none(async_config());
}

}  // namespace
}  // namespace quire::test
