// Tests one instance: its decisions equal the core's, and its times equal values computed by hand.
#include "lab/simulate/instance.h"

#include "lab/lab_support.h"
#include "lab/simulate/core_config.h"

namespace quire {
namespace {

using test::request_at;
using test::small_options;
using test::workload_of;

// One row of a plan. A row of zeros ends each plan that is not empty.
struct Decision {
  std::uint64_t request = 0;
  std::uint32_t num_computed = 0, num_tokens = 0;
  bool samples = false;
  friend bool operator==(const Decision&, const Decision&) = default;
};

void note(const StepPlan& plan, std::vector<Decision>& decisions) {
  for (const ScheduledRequest& one : plan.scheduled)
    decisions.push_back({one.id.value, one.num_computed_tokens, one.num_tokens, one.samples});
  if (!plan.scheduled.empty()) decisions.push_back({});
}

// Sends all requests at the same time and keeps the maximum number of plans in flight.
std::vector<Decision> decided_by_hand(const Workload& workload, const CoreConfig& config) {
  MixedHashes hash;
  const auto core = Core::create(config, {.hash = &hash}).value();
  const BlockHasher names = BlockHasher::create(workload, config.block_size).value();
  std::vector<BlockHash> blocks;
  for (std::uint32_t i = 0; i < workload.requests.size(); ++i) {
    names.of(workload.requests[i], blocks);
    const std::vector<TokenId> prompt(workload.requests[i].prompt_tokens, static_cast<TokenId>(i));
    NewRequest request;
    request.id = RequestId{i};
    request.prompt = prompt;
    request.max_tokens = workload.requests[i].output_tokens;
    request.block_hashes = {reinterpret_cast<const std::uint8_t*>(blocks.data()), blocks.size() * sizeof(BlockHash)};
    EXPECT_TRUE(core->add(request).has_value());
  }
  std::vector<Decision> decisions;
  std::deque<const StepPlan*> plans;
  while (core->has_work() || !plans.empty()) {
    while (plans.size() < config.limits.max_outstanding_plans && core->has_work()) {
      plans.push_back(&core->schedule());
      note(*plans.back(), decisions);
      if (plans.back()->num_scheduled_tokens == 0) break;
    }
    std::vector<SampledToken> sampled;
    for (const ScheduledRequest& one : plans.front()->scheduled)
      if (one.samples) sampled.push_back({one.id, static_cast<TokenId>(one.id.value)});
    const StepId step = plans.front()->step;
    plans.pop_front();
    EXPECT_TRUE(core->apply({.step = step, .sampled = sampled}).has_value());
  }
  return decisions;
}

class Decisions : public ::testing::TestWithParam<bool> {};

TEST_P(Decisions, EqualThoseOfACoreDrivenByHand) {
  Workload workload = test::random_workload(7);
  for (WorkloadRequest& request : workload.requests) request.start_s = 0.0;
  SimulationOptions options = small_options(GetParam());
  options.num_blocks = 60;  // small enough that requests are preempted
  const CoreConfig config = simulated_core(workload, options);
  SimulationRun played{workload, options, BlockHasher::create(workload, config.block_size).value()};
  played.times.resize(workload.requests.size());
  for (RequestTimes& times : played.times) times.arrival_s = 0.0;
  const auto instance = Instance::create(0, config, played).value();
  std::vector<Decision> decisions;
  instance->on_plan = [&](const StepPlan& plan) { note(plan, decisions); };
  for (std::uint32_t i = 0; i < workload.requests.size(); ++i) instance->give(i);
  while (instance->next_turn_s() < kNever) instance->turn();
  EXPECT_GT(instance->counters().num_preemptions, 0U);
  EXPECT_EQ(instance->num_open(), 0U);
  EXPECT_EQ(decisions, decided_by_hand(workload, config));
}

INSTANTIATE_TEST_SUITE_P(Both, Decisions, ::testing::Bool(), [](const auto& given) { return given.param ? "async" : "sync"; });

// The prompt of 10 tokens takes one step of 1 + 10 * 0.1 s, then each step takes 1 + 0.5 s.
TEST(Instance, TimesOfOneRequestMatchAHandComputation) {
  for (const bool async : {false, true}) {
    const auto result = simulate(workload_of({request_at(3.0, 10, 4)}), small_options(async)).value();
    EXPECT_DOUBLE_EQ(result.requests[0].scheduled_s, 3.0);
    EXPECT_DOUBLE_EQ(result.requests[0].first_token_s, 5.0);
    EXPECT_DOUBLE_EQ(result.requests[0].last_token_s, 9.5);
    EXPECT_DOUBLE_EQ(result.tpot_s.mean, 1.5);
    EXPECT_DOUBLE_EQ(result.makespan_s, 6.5);
  }
}

// The first request computes alone from 0 to 2; the second arrives at 0.5. In synchronous mode it runs from 2 to 4.5, next to a row of the
// first. The asynchronous loop has already planned that row alone when the second arrives, so the second runs from 3.5 to 6.
TEST(Instance, AsyncSchedulingSeesANewRequestOneStepLater) {
  const Workload workload = workload_of({request_at(0.0, 10, 5), request_at(0.5, 10, 2)});
  const auto sync = simulate(workload, small_options(false)).value();
  EXPECT_DOUBLE_EQ(sync.requests[1].scheduled_s, 2.0);
  EXPECT_DOUBLE_EQ(sync.requests[1].first_token_s, 4.5);
  const auto async = simulate(workload, small_options(true)).value();
  EXPECT_DOUBLE_EQ(async.requests[1].scheduled_s, 2.0);
  EXPECT_DOUBLE_EQ(async.requests[1].first_token_s, 6.0);
}

TEST(Instance, HostTimeIsHiddenOnlyByAStepInFlight) {
  SimulationOptions sync = small_options(false), async = small_options(true);
  sync.worker.host_s = async.worker.host_s = 0.25;
  const Workload workload = workload_of({request_at(0.0, 10, 4)});
  // Synchronous mode pays the host's time before each of four steps, asynchronous mode only before the first.
  EXPECT_DOUBLE_EQ(simulate(workload, sync).value().makespan_s, 6.5 + 4 * 0.25);
  EXPECT_DOUBLE_EQ(simulate(workload, async).value().makespan_s, 6.5 + 0.25);
}

TEST(Instance, ContextAndAttentionPairsTakeTime) {
  SimulationOptions options = small_options(false);
  options.worker = {.host_s = 0.0,
                    .step_s = 1.0,
                    .prefill_token_s = 0.0,
                    .decode_row_s = 0.0,
                    .context_token_s = 1.0,
                    .prefill_pair_s = 0.01,
                    .source = {}};
  const auto result = simulate(workload_of({request_at(0.0, 10, 2)}), options).value();
  // The prefill has 10 * 11 / 2 pairs; then one row reads 11 tokens.
  EXPECT_DOUBLE_EQ(result.requests[0].first_token_s, 1.55);
  EXPECT_DOUBLE_EQ(result.requests[0].last_token_s, 1.55 + 12.0);
}

}  // namespace
}  // namespace quire
