#pragma once
// Runs concurrent requests of any kind in an engine with features. Each request must get the answer that it gets alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "engine/feature_mix.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {

// Counts the events of a run, so that a run without them fails.
struct MetTogether {
  std::uint64_t num_rounds = 0, num_answers = 0, num_preemptions = 0, num_loads = 0, num_forks = 0, num_swapped = 0, num_accepted = 0;
  std::set<FeatureSet> sets;
};

// An engine with some features that runs requests of any kind concurrently.
class Mixed {
 public:
  Mixed(FeatureSet engine, const std::string& model, Alone& alone, bool caches) : set_(engine), alone_(alone) {
    Made made = make_options(engine, model, folder_.path() + "/kv");
    made.options.cache.enable_prefix_caching = caches;
    auto created = create_engine(made.options, nullptr, nullptr, made.seams);
    EXPECT_TRUE(created.has_value()) << engine.name() << ": " << created.error().to_string();
    if (created) engine_ = std::move(*created);
  }

  [[nodiscard]] bool is_made() const { return engine_ != nullptr; }

  void ask(FeatureSet set, std::uint32_t text, Random& random) {
    const bool has_tools = set.has(Feature::tools);
    EngineRequest request = alone_.make(set, text, has_tools ? std::optional(alone_.tool_mark(set, text)) : std::nullopt);
    if (set_.has(Feature::priorities)) request.priority = static_cast<std::int64_t>(random.below(3)) - 1;
    if (set_.has(Feature::continuum) && !request.beam_search)
      request.tags = {.job = fmt::format("job {}", text), .is_last_step = random.chance(0.2), .tool = "ls"};
    Asked& asked = queried_.emplace_back(Asked{.set = set, .text = text, .n = request.n});
    const auto id = engine_->submit(request, sink_);
    ASSERT_TRUE(id.has_value()) << set.name() << ": " << id.error().to_string();
    asked.id = *id;
    if (set.has(Feature::fork)) fork(asked, random);
    if (!request.session) return;
    give_input(asked.id, text);
    if (asked.child) give_input(*asked.child, text);
  }

  void expect_all(MetTogether& met) {
    for (const Asked& asked : queried_) {
      const std::vector<Collector::Answer> wanted = alone_.answers(asked.set, asked.text);
      for (std::uint32_t i = 0; i < asked.n; ++i)
        EXPECT_EQ(bits_of(sink_.wait({asked.id.value + i})), bits_of(wanted.at(i))) << what(asked) << ", answer " << i;
      if (asked.child) expect_child(asked, wanted.at(0));
      met.num_answers += asked.n + (asked.child ? 1 : 0);
    }
    queried_.clear();
  }

  void forget_cached() {
    engine_->reset_prefix_cache({.preempt_running = false, .external = false}, [](const Result<bool>&) {});
  }

  void stop(MetTogether& met) {
    EXPECT_EQ(engine_->stop(60.0), 0U);
    const EngineStats stats = engine_->stats();
    EXPECT_EQ(stats.num_free_blocks, stats.num_blocks) << set_.name();
    met.num_preemptions += stats.num_preemptions;
    met.num_loads += stats.num_loads;
    met.num_forks += stats.num_forks;
    if (stats.kv_swap) met.num_swapped += stats.kv_swap->num_in;
    if (stats.speculation) met.num_accepted += stats.speculation->num_accepted_tokens;
  }

 private:
  struct Asked {
    FeatureSet set;
    std::uint32_t text = 0;
    RequestId id{};
    std::uint32_t n = 1;
    std::optional<RequestId> child{};
  };

  // Forks the parent at its current token, which may be its end.
  void fork(Asked& asked, Random& random) {
    sink_.wait_for_tokens(asked.id, random.below(4));
    Result<RequestId> child = engine_->fork(asked.id, {}, sink_);
    while (!child && child.error().code == ErrorCode::overloaded) child = engine_->fork(asked.id, {}, sink_);
    if (child) asked.child = *child;
  }

  void give_input(RequestId id, std::uint32_t text) {
    // A fork that came too late has no child.
    if (engine_->append(id, next_input(text))) (void)engine_->append(id, {});
  }

  void expect_child(const Asked& asked, Collector::Answer wanted) {
    Collector::Answer got = sink_.wait(*asked.child);
    if (got.error.find("has ended") != std::string::npos || got.error.find("but the fork already has") != std::string::npos) return;
    const auto first = static_cast<std::size_t>(std::ranges::count_if(got.logprobs, [](const auto& one) { return one.entries.empty(); }));
    got.prompt_logprobs = wanted.prompt_logprobs = nullptr;
    EXPECT_EQ(bits_of(got, first), bits_of(wanted, first)) << what(asked) << ", its child: " << got.error;
  }

  [[nodiscard]] std::string what(const Asked& asked) const {
    return fmt::format("{} beside {}, text {}", asked.set.name(), set_.name(), asked.text);
  }

  FeatureSet set_;
  Alone& alone_;
  TempFolder folder_;
  std::unique_ptr<Engine> engine_;
  Collector sink_;
  std::vector<Asked> queried_;
};

}  // namespace quire::test
