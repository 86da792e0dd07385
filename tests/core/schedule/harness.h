#pragma once
// Harness steps a scheduler and a fake worker by hand, with seeded random requests.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/random.h"
#include "core/journal/told.h"
#include "core/schedule/fake_worker.h"
#include "quire/core.h"

namespace quire::test {

inline constexpr TokenId kVocabulary = 50;
inline constexpr TokenId kEosToken = 0;
inline constexpr TokenId kStopToken = 1;

// Sets one group with full attention and config.block_size.
inline void use_one_group(CoreConfig& config, std::uint32_t num_blocks) {
  FullAttentionSpec spec;
  spec.block_size = config.block_size;
  config.kv = {.num_blocks = num_blocks, .groups = {{.layer_names = {}, .spec = spec, .layer_specs = {}}}, .tensors = {}};
}

inline CoreConfig small_config(std::uint32_t num_blocks = 64) {
  CoreConfig config;
  config.block_size = 4;
  use_one_group(config, num_blocks);
  config.scheduler.async_scheduling = false;
  config.scheduler.max_num_seqs = 8;
  config.scheduler.max_num_batched_tokens = 32;
  config.scheduler.max_model_len = 80;
  return config;
}

struct Expectation {
  std::vector<TokenId> prompt;
  NewRequest request;  // its spans point into this object and into constants
  RequestTags tags;
  std::uint64_t salt = 0;
  std::vector<TokenId> outputs;
  // For a fork: its seed, and how many of the tokens that it began with (`prompt`) are outputs.
  std::uint64_t seed = 0;
  std::uint32_t num_inherited = 0;
};

inline constexpr TokenId kEosTokens[] = {kEosToken};
inline constexpr TokenId kStopTokens[] = {kStopToken};

// Draws prompts from a few stems, so that prefixes repeat.
inline std::unique_ptr<Expectation> random_request(Random& random, RequestId id, std::uint32_t max_total) {
  auto e = std::make_unique<Expectation>();
  const auto stem = static_cast<TokenId>(random.below(3));
  const std::uint64_t stem_length = random.between(0, max_total / 2);
  for (std::uint64_t i = 0; i < stem_length; ++i)
    e->prompt.push_back(static_cast<TokenId>((static_cast<std::uint64_t>(stem) * 7 + i * 3) % kVocabulary));
  for (std::uint64_t i = random.between(1, max_total / 8); i > 0; --i) e->prompt.push_back(static_cast<TokenId>(random.below(kVocabulary)));
  const auto room = static_cast<std::uint32_t>(max_total - e->prompt.size());
  e->salt = random.chance(0.25) ? 1 + random.below(2) : 0;
  e->request.id = id;
  e->request.prompt = e->prompt;
  e->request.max_tokens = static_cast<std::uint32_t>(random.between(1, room));
  if (random.chance(0.5)) e->request.eos_ids = kEosTokens;
  e->request.stop_token_ids = kStopTokens;
  e->request.min_tokens = static_cast<std::uint32_t>(random.below(e->request.max_tokens));
  e->request.cache_salt = std::string_view("ss").substr(0, e->salt);
  e->request.priority = static_cast<std::int64_t>(random.below(3));
  // Requests with equal arrival times can preempt each other forever under PRIORITY, in vLLM too.
  e->request.arrival_time = static_cast<double>(id.value);
  return e;
}

class Harness {
 public:
  explicit Harness(const CoreConfig& given, const CoreSeams& seams = {})
      : config(given), worker(given.kv.num_blocks, given.block_size, given.scheduler.max_num_seqs, kVocabulary) {
    auto created = Core::create(config, seams);
    EXPECT_TRUE(created.has_value()) << created.error().to_string();
    core = std::move(*created);
  }

  void add(std::unique_ptr<Expectation> e) {
    worker.set_salt(e->request.id, e->salt);
    const auto added = core->add(e->request, {.now = now});
    ASSERT_TRUE(added.has_value()) << added.error().to_string();
    alive[e->request.id] = std::move(e);
  }

  void add(std::uint64_t id, const std::vector<TokenId>& prompt, std::uint32_t max_tokens) {
    auto e = std::make_unique<Expectation>();
    e->prompt = prompt;
    e->request.id = RequestId{id};
    e->request.prompt = e->prompt;
    e->request.max_tokens = max_tokens;
    add(std::move(e));
  }

  // Forks a request. The child continues from the parent's tokens as a separate request.
  Result<void> fork(RequestId parent, const ForkRequest& child, std::uint64_t seed) {
    const auto forked = core->fork(parent, child, {.now = now});
    core->check_invariants();
    if (!forked) return forked;
    const Expectation& from = *alive.at(parent);
    auto e = std::make_unique<Expectation>();
    const RequestView view = *core->view(child.id);
    e->prompt.assign(view.tokens.begin(), view.tokens.end());
    e->request = from.request;
    e->request.id = child.id;
    e->request.max_tokens = view.max_tokens;
    e->request.min_tokens = std::min(from.request.min_tokens, view.max_tokens);
    e->salt = from.salt;
    e->seed = seed;
    e->num_inherited = static_cast<std::uint32_t>(view.tokens.size()) - view.num_prompt_tokens;
    worker.set_salt(child.id, e->salt);
    worker.set_seed(child.id, seed);
    alive[child.id] = std::move(e);
    return {};
  }

  // Plans and runs a step; apply_oldest() applies its result. The worker runs immediately and is never ahead of the plans.
  const StepPlan& plan() {
    const StepPlan& plan = core->schedule({.now = now});
    check_plan(plan);
    told(plan);
    if (move) move(plan);
    const StepResult result = worker.run(plan);
    results.emplace_back(result.step, std::vector<SampledToken>(result.sampled.begin(), result.sampled.end()));
    return plan;
  }

  const StepOutcome& apply_oldest() {
    const auto [step, sampled] = std::move(results.front());
    results.pop_front();
    const std::vector<TransferCompletion> over = std::exchange(completions[step], {});
    const auto applied = core->apply({.step = step, .sampled = sampled, .completions = over}, {.now = now});
    EXPECT_TRUE(applied.has_value()) << applied.error().to_string();
    const StepOutcome& outcome = **applied;
    told(outcome, core->counters());
    for (const RequestUpdate& update : outcome.updates) {
      Expectation& e = *alive.at(update.id);
      e.outputs.insert(e.outputs.end(), update.tokens.begin(), update.tokens.end());
      if (update.finished && !update.session_waits) {
        check_finished(e, update);
        alive.erase(update.id);
      }
    }
    core->check_invariants();
    return outcome;
  }

  const StepOutcome& step() {
    plan();
    return apply_oldest();
  }

  void finish(RequestId id) {
    EXPECT_NE(core->finish(id, RequestStatus::finished_aborted, {.now = now}), FinishEffect::unknown);
    alive.erase(id);
    core->check_invariants();
  }

  void run_to_end(int max_steps = 20000) {
    while (core->has_work() || !results.empty()) {
      ASSERT_GT(max_steps--, 0) << "no progress";
      step();
      if (testing::Test::HasFatalFailure()) return;
    }
    EXPECT_TRUE(alive.empty());
    EXPECT_TRUE(core->all_blocks_free());
  }

  CoreConfig config;
  std::unique_ptr<Core> core;
  FakeWorker worker;
  std::map<RequestId, std::unique_ptr<Expectation>> alive;
  std::deque<std::pair<StepId, std::vector<SampledToken>>> results;
  // Executes the transfers of a plan before the plan runs. Finished transfers arrive with the result of the plan. Loads into blocks that
  // the plan also copies need FakeWorker::load.
  std::function<void(const StepPlan&)> move;
  std::map<StepId, std::vector<TransferCompletion>> completions;
  bool check_outputs = true;
  Told told{true};   // digest of plans and outcomes, for a DecisionRecord
  double now = 0.0;  // in seconds

 private:
  void check_plan(const StepPlan& plan) {
    std::uint32_t num_tokens = 0;
    std::set<Slot> slots;
    for (const ScheduledRequest& s : plan.scheduled) {
      EXPECT_GT(s.num_tokens, 0U);
      EXPECT_TRUE(slots.insert(s.slot).second);
      num_tokens += s.num_tokens;
    }
    EXPECT_EQ(num_tokens, plan.num_scheduled_tokens);
    EXPECT_LE(num_tokens, config.scheduler.max_num_batched_tokens);
    EXPECT_LE(plan.scheduled.size(), config.scheduler.max_num_seqs);
    core->check_invariants();
  }

  // Checks that a request ends by vLLM's rules: at the first stop id at or after min_tokens, or at the limit.
  void check_finished(const Expectation& e, const RequestUpdate& update) {
    if (!check_outputs) return;
    const std::size_t limit =
        std::min<std::size_t>(e.request.max_tokens - e.num_inherited, config.scheduler.max_model_len - e.prompt.size());
    auto outputs = worker.expected(e.prompt, e.salt, limit, e.seed);
    FinishReason reason = FinishReason::length;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const bool eos = outputs[i] == kEosToken && !e.request.eos_ids.empty();
      const bool stop = outputs[i] == kStopToken && !e.request.stop_token_ids.empty();
      if (e.num_inherited + i + 1 >= e.request.min_tokens && (eos || stop)) {
        outputs.resize(i + 1);
        reason = FinishReason::stop;
      }
    }
    EXPECT_EQ(e.outputs, outputs) << "request " << e.request.id.value;
    EXPECT_EQ(update.reason, reason);
    const bool by_stop_id = reason == FinishReason::stop && (outputs.back() != kEosToken || e.request.eos_ids.empty());
    EXPECT_EQ(update.stop_token, by_stop_id ? std::optional(outputs.back()) : std::nullopt);
  }
};

}  // namespace quire::test
