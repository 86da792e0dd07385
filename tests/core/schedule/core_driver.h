#pragma once
// CoreDriver steps a core by hand. Tests write out requests and results. The driver copies the core's output so that tests can compare it
// later.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include "quire/core.h"

namespace quire::test {

using Tokens = std::vector<TokenId>;
using Ids = std::vector<std::uint64_t>;

inline constexpr std::uint32_t kBlockSize = 4;
inline constexpr TokenId kEos = 1;
inline constexpr TokenId kStop = 2;
inline constexpr TokenId kEosIds[] = {kEos};
inline constexpr TokenId kStopIds[] = {kStop};
inline constexpr TokenId kSomeToken = 40;

inline CoreConfig sync_config(std::uint32_t num_blocks = 32) {
  CoreConfig config;
  config.block_size = kBlockSize;
  config.kv.num_blocks = num_blocks;
  FullAttentionSpec spec;
  spec.block_size = kBlockSize;
  config.kv.groups = {{.layer_names = {"layer"}, .spec = spec, .layer_specs = {}}};
  config.scheduler.max_num_seqs = 8;
  config.scheduler.max_num_batched_tokens = 64;
  config.scheduler.max_model_len = 100;
  config.scheduler.async_scheduling = false;
  config.limits.max_outstanding_plans = 1;
  return config;
}

inline CoreConfig async_config(std::uint32_t num_blocks = 32) {
  CoreConfig config = sync_config(num_blocks);
  config.scheduler.async_scheduling = true;
  config.limits.max_outstanding_plans = 2;
  return config;
}

inline CoreConfig priority_config(std::uint32_t num_blocks) {
  CoreConfig config = sync_config(num_blocks);
  config.scheduler.policy = SchedulingPolicy::priority;
  return config;
}

struct Update {
  std::uint64_t id = 0;
  std::uint32_t client_index = 0;
  std::uint32_t result_index = 0;
  Tokens tokens;
  bool finished = false;
  RequestStatus status = RequestStatus::running;
  FinishReason reason = FinishReason::stop;
  std::optional<TokenId> stop_token;
  bool session_waits = false;
  std::int64_t num_cached_tokens = 0;
  std::int64_t num_external_computed_tokens = 0;
  std::vector<RequestEvent> events;
};

struct Outcome {
  std::vector<Update> updates;
  std::vector<std::uint64_t> retired, preempted, first_admissions;
  std::map<std::uint32_t, std::vector<std::uint64_t>> finished_sets;
  std::vector<KvEvent> kv_events;
  std::optional<SchedulerStats> stats;
};

inline Ids values(std::span<const RequestId> ids) {
  Ids result;
  std::ranges::transform(ids, std::back_inserter(result), &RequestId::value);
  return result;
}

inline Ids scheduled_ids(const StepPlan& plan) {
  Ids ids;
  std::ranges::transform(plan.scheduled, std::back_inserter(ids), [](const ScheduledRequest& s) { return s.id.value; });
  return ids;
}

class CoreDriver {
 public:
  explicit CoreDriver(const CoreConfig& config, const CoreSeams& seams = {}) {
    auto created = Core::create(config, seams);
    EXPECT_TRUE(created.has_value()) << created.error().to_string();
    core = std::move(*created);
  }

  // Makes a unique prompt: no two requests share a block.
  static Tokens prompt(std::uint64_t id, std::uint32_t num_tokens) {
    Tokens tokens(num_tokens);
    std::iota(tokens.begin(), tokens.end(), static_cast<TokenId>(1000 * id));
    return tokens;
  }

  static NewRequest request(std::uint64_t id, const Tokens& prompt, std::uint32_t max_tokens) {
    return {.id = RequestId{id},
            .prompt = prompt,
            .arrival_time = static_cast<double>(id),
            .max_tokens = max_tokens,
            .eos_ids = kEosIds,
            .stop_token_ids = kStopIds};
  }

  void add(std::uint64_t id, std::uint32_t num_prompt_tokens, std::uint32_t max_tokens) {
    const Tokens tokens = prompt(id, num_prompt_tokens);
    add(request(id, tokens, max_tokens));
  }
  void add(const NewRequest& request) {
    const auto added = core->add(request, {.now = now});
    ASSERT_TRUE(added.has_value()) << added.error().to_string();
  }

  void add_with_priority(std::uint64_t id, std::uint32_t num_prompt_tokens, std::int64_t priority, double arrival_time,
                         std::uint32_t max_tokens = 6) {
    const Tokens tokens = prompt(id, num_prompt_tokens);
    NewRequest given = request(id, tokens, max_tokens);
    given.priority = priority;
    given.arrival_time = arrival_time;
    add(given);
  }

  const StepPlan& plan() {
    now += 1.0;
    const StepPlan& plan = core->schedule({.now = now});
    pending.push_back({plan.step, {}});
    for (const ScheduledRequest& s : plan.scheduled)
      pending.back().second.push_back({s.id.value, s.num_tokens, s.samples, static_cast<std::uint32_t>(s.drafts.size())});
    newest = pending.back().second;
    return plan;
  }

  // Applies the result of the oldest plan. It contains the given tokens; every other sampling request gets one plain token and no accepted
  // draft.
  Outcome apply(const std::map<std::uint64_t, Tokens>& answers = {}, StepResult result = {}) {
    sampled.clear();
    for (const Scheduled& s : pending.front().second) {
      const auto answer = answers.find(s.id);
      for (TokenId token : answer != answers.end() ? answer->second : Tokens(s.samples ? 1 : 0, kSomeToken))
        sampled.push_back({RequestId{s.id}, token});
    }
    result.step = pending.front().first;
    result.sampled = sampled;
    pending.erase(pending.begin());
    now += 1.0;
    const auto applied = core->apply(result, {.now = now});
    EXPECT_TRUE(applied.has_value()) << applied.error().to_string();
    core->check_invariants();
    return applied ? copy(**applied) : Outcome{};
  }

  Outcome step(const std::map<std::uint64_t, Tokens>& answers = {}) {
    plan();
    return apply(answers);
  }

  // Returns the tokens scheduled for the request in the newest plan, or 0 when the plan does not contain it.
  [[nodiscard]] std::uint32_t scheduled(std::uint64_t id) const {
    for (const Scheduled& s : newest)
      if (s.id == id) return s.num_tokens;
    return 0;
  }

  [[nodiscard]] RequestView view(std::uint64_t id) const {
    const auto view = core->view(RequestId{id});
    EXPECT_TRUE(view.has_value()) << "request " << id;
    return view.value_or(RequestView{});
  }
  [[nodiscard]] bool known(std::uint64_t id) const { return core->view(RequestId{id}).has_value(); }
  [[nodiscard]] Tokens outputs(std::uint64_t id) const {
    const RequestView request = view(id);
    return {request.tokens.begin() + request.num_prompt_tokens, request.tokens.end()};
  }
  [[nodiscard]] std::vector<BlockId> blocks(std::uint64_t id) const {
    const auto blocks = core->blocks(RequestId{id}, 0);
    return {blocks.begin(), blocks.end()};
  }
  [[nodiscard]] CoreSnapshot snapshot() const {
    CoreSnapshot snapshot;
    core->snapshot(snapshot);
    return snapshot;
  }
  // Returns whether the block has a hash by which a lookup finds it.
  [[nodiscard]] bool cached(BlockId block) const { return !snapshot().blocks.at(block.value).key.empty(); }

  std::unique_ptr<Core> core;
  double now = 0.0;  // in seconds; plan() and apply() add 1

 private:
  struct Scheduled {
    std::uint64_t id;
    std::uint32_t num_tokens;
    bool samples;
    std::uint32_t num_drafts;
  };

  static Outcome copy(const StepOutcome& outcome) {
    Outcome result;
    for (const RequestUpdate& u : outcome.updates) {
      result.updates.push_back({.id = u.id.value,
                                .client_index = u.client_index,
                                .result_index = u.result_index,
                                .tokens = {u.tokens.begin(), u.tokens.end()},
                                .finished = u.finished,
                                .status = u.status,
                                .reason = u.reason,
                                .stop_token = u.stop_token,
                                .session_waits = u.session_waits,
                                .num_cached_tokens = u.num_cached_tokens,
                                .num_external_computed_tokens = u.num_external_computed_tokens,
                                .events = {u.events.begin(), u.events.end()}});
    }
    result.retired = values(outcome.retired);
    result.preempted = values(outcome.preempted);
    std::ranges::transform(outcome.first_admissions, std::back_inserter(result.first_admissions),
                           [](const FirstAdmission& a) { return a.id.value; });
    for (const FinishedSet& set : outcome.finished_sets) result.finished_sets[set.client_index] = values(set.ids);
    result.kv_events.assign(outcome.kv_events.begin(), outcome.kv_events.end());
    if (outcome.stats != nullptr) result.stats = *outcome.stats;
    return result;
  }

  std::vector<std::pair<StepId, std::vector<Scheduled>>> pending;
  std::vector<Scheduled> newest;
  std::vector<SampledToken> sampled;
};

}  // namespace quire::test
