#pragma once
// Starts engines of random configurations with a simulated model, and runs requests of all kinds on them. A seed decides everything.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "engine/simulated_engine.h"

namespace quire::test {

inline EngineOptions random_options(Random& random) {
  EngineOptions options;
  options.cache.num_blocks = static_cast<std::uint32_t>(random.between(28, 60));
  options.cache.kv_cache_metrics = random.chance(0.3);
  options.cache.kv_cache_metrics_sample = 0.5;
  options.cache.count_common_prefix = random.chance(0.3);
  options.cache.lifo_free_blocks = random.chance(0.3);
  if (!options.cache.lifo_free_blocks && options.cache.num_blocks % 2 == 0) options.cache.slru_share = options.cache.retained_share = 0.4;
  options.cache.enable_prefix_caching = random.chance(0.8);
  options.scheduler.max_num_seqs = static_cast<std::uint32_t>(random.between(2, 12));
  options.scheduler.max_num_batched_tokens = static_cast<std::uint32_t>(random.between(24, 200));
  options.scheduler.policy = static_cast<SchedulingPolicy>(random.below(3));
  options.scheduler.long_prefill_token_threshold = random.chance(0.4) ? 16 : 0;
  if (random.chance(0.3)) options.pressure = {.admission_watermark = 0.05, .pressure_high = 0.9, .pressure_low = 0.7};
  if (random.chance(0.5)) options.kv_swap = {.bytes = 1U << 20U, .choice = SwapChoice::always};
  return options;
}

// Runs requests of all kinds and operator calls in between; all requests have ended when it returns.
class LiveRun {
 public:
  LiveRun(Engine& engine, std::uint64_t seed) : engine_(engine), random_(seed) {}

  void play(int count) {
    for (int i = 0; i < count; ++i) {
      submit();
      if (random_.chance(0.15)) fork();
      if (random_.chance(0.1)) engine_.finish(some(), FinishReason::abort);
      if (random_.chance(0.03)) engine_.reset_prefix_cache({.preempt_running = random_.chance(0.5)}, [](const Result<bool>&) {});
      if (random_.chance(0.02)) {
        engine_.pause({.mode = PauseMode::keep, .clear_cache = random_.chance(0.5)}, [](const Result<bool>&) {});
        engine_.resume([](const Result<bool>&) {});
      }
      if (random_.chance(0.05)) sink_.wait_for_end(some(), 200);
    }
    // Sessions that wait for input hold blocks that other requests need, so the test may have to abort some.
    for (const RequestId id : open_)
      if (!sink_.wait_for_end(id, 2000)) engine_.finish(id, FinishReason::abort);
    for (const RequestId id : open_) EXPECT_TRUE(sink_.wait_for_end(id, 60'000)) << "request " << id.value;
  }

 private:
  RequestId some() { return open_[random_.below(open_.size())]; }
  void submit() {
    EngineRequest request = random_request(random_);
    const bool is_search = random_.chance(0.1);
    if (random_.chance(0.2) || is_search) request.n = 2;
    if (is_search) {
      request.beam_search.emplace();
      request.sampling.max_tokens = 6;
      request.sampling.stop_token_ids = {};
    } else if (request.n == 1 && random_.chance(0.15)) {
      request.session = true;
    }
    if (engine_.options().scheduler.policy != SchedulingPolicy::fcfs) {
      request.priority = engine_.options().scheduler.policy == SchedulingPolicy::priority ? static_cast<std::int64_t>(random_.below(3)) : 0;
      if (!is_search) request.tags = {.job = fmt::format("job {}", random_.below(5)), .tool = "ls"};
    }
    const std::uint32_t n = request.n;
    const bool is_session = request.session;
    const auto id = engine_.submit(std::move(request), sink_);
    ASSERT_TRUE(id.has_value()) << id.error().to_string();
    for (std::uint32_t i = 0; i < n; ++i) open_.push_back({id->value + i});
    if (!is_session) return;
    (void)engine_.append(*id, {5, 6, 7});
    (void)engine_.append(*id, {});
  }
  // A child of a session is also a session, and ends when its input is closed.
  void fork() {
    const auto child = engine_.fork(some(), {}, sink_);
    if (!child) return;
    open_.push_back(*child);
    (void)engine_.append(*child, {});
  }

  Engine& engine_;
  Random random_;
  Collector sink_;
  std::vector<RequestId> open_;
};

inline std::unique_ptr<Engine> start_random(std::uint64_t seed, const JournalOptions& journal) {
  Random random(seed);
  Setup setup{.options = random_options(random)};
  setup.options.journal = journal;
  return start(kModes[seed % std::size(kModes)], std::move(setup));
}

}  // namespace quire::test
