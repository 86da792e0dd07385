// Draws engine limits at and beyond their smallest values, and sends clients' requests of every kind. No limit and no request aborts the
// program. Every refusal is an error that names a field or reports that the engine is full.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "engine/simulated_engine.h"
#include "engine/spelling_model.h"
#include "quire/watch.h"
#include "runtime/grammar/grammar_matcher.h"
#include "support/rounds.h"

namespace quire {
namespace {

struct Met {
  std::uint32_t num_engines = 0, num_refused_options = 0, num_taken = 0, num_refused = 0, num_searches = 0, num_forked = 0, num_inputs = 0,
                num_grammars = 0, num_errors = 0;
};

template <class T>
T pick(Random& random, std::initializer_list<T> values) {
  return *(values.begin() + random.below(values.size()));
}

EngineOptions draw_options(Random& random) {
  EngineOptions options;
  options.cache.block_size = pick(random, {1U, 2U, 4U, 16U});
  options.cache.num_blocks = pick(random, {2U, 3U, 5U, 9U, 20U, 60U, 200U});
  options.cache.enable_prefix_caching = random.chance(0.8);
  options.cache.lifo_free_blocks = random.chance(0.2);
  if (!options.cache.lifo_free_blocks && random.chance(0.3)) options.cache.slru_share = options.cache.retained_share = random.unit();
  options.scheduler.max_num_seqs = pick(random, {1U, 1U, 2U, 3U, 8U});
  options.scheduler.max_num_batched_tokens = pick(random, {1U, 2U, 7U, 64U});
  options.scheduler.max_num_waiting = pick(random, {1U, 2U, 5U, 40U, 200U});
  options.scheduler.max_model_len = pick(random, {0U, 0U, 2U, 3U, 17U, 256U});
  options.scheduler.long_prefill_token_threshold = pick(random, {0U, 0U, 1U, 5U});
  options.scheduler.policy = pick(random, {SchedulingPolicy::fcfs, SchedulingPolicy::priority, SchedulingPolicy::continuum});
  options.scheduler.reserve_full_isl = random.chance(0.7);
  options.max_fork_family = pick(random, {1U, 1U, 2U, 3U, 4U, 11U, 256U});
  options.continuum.pin_s = pick(random, {0.0, 0.01, 100.0});
  options.continuum.max_jobs = pick(random, {1U, 2U, 100U});
  options.continuum.max_tools = pick(random, {1U, 100U});
  if (random.chance(0.3)) options.pressure.admission_watermark = pick(random, {0.01, 0.5, 0.99});
  if (random.chance(0.3)) options.pressure = {.pressure_high = 0.6, .pressure_low = 0.3, .pressure_preempts = random.chance(0.5)};
  if (random.chance(0.3)) options.kv_swap = {.bytes = pick<std::uint64_t>(random, {1, 64, 4096}), .choice = SwapChoice::always};
  options.explained_requests = pick(random, {0U, 1U, 3U});
  options.curve_blocks = pick(random, {0U, 1U, 100U});
  options.cache.kv_cache_metrics = random.chance(0.2);
  options.journal.memory_bytes = pick<std::uint64_t>(random, {0, std::uint64_t{1} << 20});
  return options;
}

EngineRequest draw_request(Random& random) {
  EngineRequest request = random_request(random);
  request.prompt.resize(std::min<std::size_t>(request.prompt.size(), pick(random, {0U, 1U, 2U, 15U, 100U})));
  if (random.chance(0.1)) request.prompt.assign(pick(random, {255U, 256U, 300U}), 7);
  if (random.chance(0.3)) request.sampling.max_tokens = pick(random, {0U, 1U, 2U, 1000U, UINT32_MAX});
  if (random.chance(0.2)) request.sampling.min_tokens = pick(random, {1U, 5U, UINT32_MAX});
  if (random.chance(0.1)) request.sampling.prompt_logprobs = pick(random, {0U, 1U, 20U});
  if (random.chance(0.1)) request.priority = pick<std::int64_t>(random, {INT64_MIN, -1, 3, INT64_MAX});
  if (random.chance(0.4)) request.n = pick(random, {0U, 2U, 3U, 10U, 11U, 128U, 129U, UINT32_MAX});
  if (random.chance(0.25)) {
    request.beam_search = BeamSearchOptions{};
    request.sampling.stop_token_ids.clear();
    request.n = static_cast<std::uint32_t>(random.between(1, 12));
  } else if (random.chance(0.3)) {
    request.session = true;
    if (random.chance(0.9)) request.n = 1;
  } else if (random.chance(0.1)) {
    request.pooling = true;
  }
  if (has_structured_output() && random.chance(0.2))
    request.structured_output =
        StructuredOutput{.kind = StructuredOutput::Kind::regex, .text = pick(random, {"[a-f]{3,9}", "(", "[0-9]+"})};
  request.tags.tenant = pick(random, {"", "a", "b"});
  if (random.chance(0.3)) request.tags.job = pick(random, {"j", "k"});
  request.tags.is_last_step = random.chance(0.2);
  return request;
}

void expect_refusal(const Error& error, Met& met) {
  ++met.num_refused;
  EXPECT_FALSE(error.to_string().empty());
  EXPECT_TRUE(!error.field.empty() || error.code == ErrorCode::overloaded || error.code == ErrorCode::shutting_down) << error.to_string();
}

// Plays one client that sends every kind of call to one engine.
class Play {
 public:
  Play(Engine& engine, Collector& sink, Random& random, Met& met) : engine_(engine), sink_(sink), random_(random), met_(met) {}

  void act() {
    switch (random_.below(12)) {
      case 0:
        return fork();
      case 1:
      case 2:
        return append();
      case 3:
        if (!ids_.empty()) engine_.finish(any(), pick(random_, {FinishReason::abort, FinishReason::stop}));
        return;
      case 4:
        return operate();
      case 5:
        return ask();
      default:
        return submit();
    }
  }

  void finish_all() {
    engine_.resume([](const Result<bool>& /*done*/) {});
    for (const RequestId id : sessions_) engine_.finish(id, FinishReason::stop);
    for (const RequestId id : ids_) {
      ASSERT_TRUE(sink_.wait_for_end(id, 60'000)) << "request " << id.value << " was accepted but has no final output";
      const Collector::Answer answer = sink_.wait(id);
      EXPECT_EQ(answer.num_finals, 1U);
      if (answer.reason != FinishReason::error) continue;
      ++met_.num_errors;
      EXPECT_FALSE(answer.error.empty());
      if (answer.refusal) EXPECT_FALSE(answer.refusal->field.empty()) << answer.error;
    }
  }

 private:
  RequestId any() { return ids_[random_.below(ids_.size())]; }

  void submit() {
    const EngineRequest request = draw_request(random_);
    const auto id = engine_.submit(request, sink_);
    if (!id) return expect_refusal(id.error(), met_);
    ++met_.num_taken;
    met_.num_searches += request.beam_search.has_value() ? 1 : 0;
    met_.num_grammars += request.structured_output.has_value() ? 1 : 0;
    for (std::uint32_t i = 0; i < request.n; ++i) ids_.push_back({id->value + i});
    if (request.session) sessions_.push_back(*id);
  }

  void fork() {
    if (ids_.empty()) return;
    const RequestId parent = sessions_.empty() || random_.chance(0.2) ? any() : sessions_[random_.below(sessions_.size())];
    // The engine refuses a fork before it has taken the parent.
    if (random_.chance(0.5)) sink_.wait_for_tokens(parent, 1, std::chrono::milliseconds(20));
    EngineFork fork{.n = pick(random_, {0U, 1U, 1U, 2U, 3U, 128U})};
    if (random_.chance(0.5)) fork.max_tokens = pick(random_, {0U, 1U, 3U, 60U, UINT32_MAX});
    const auto first = engine_.fork(parent, fork, sink_);
    if (!first) return expect_refusal(first.error(), met_);
    ++met_.num_forked;
    for (std::uint32_t i = 0; i < fork.n; ++i) ids_.push_back({first->value + i});
    if (std::ranges::count(sessions_, parent) == 0) return;
    for (std::uint32_t i = 0; i < fork.n; ++i) sessions_.push_back({first->value + i});
  }

  void append() {
    if (ids_.empty()) return;
    const RequestId id = sessions_.empty() || random_.chance(0.1) ? any() : sessions_[random_.below(sessions_.size())];
    std::vector<TokenId> tokens(random_.chance(0.1) ? 0 : random_.between(1, 20), static_cast<TokenId>(random_.below(190)));
    if (random_.chance(0.05)) tokens.push_back(pick(random_, {-1, 100000}));
    const auto given = engine_.append(id, tokens);
    if (!given) return expect_refusal(given.error(), met_);
    ++met_.num_inputs;
  }

  void operate() {
    const auto ignore = [](const Result<bool>& /*done*/) {};
    if (random_.chance(0.3))
      engine_.pause({.mode = pick(random_, {PauseMode::abort, PauseMode::wait, PauseMode::keep}), .clear_cache = random_.chance(0.5)},
                    ignore);
    else if (random_.chance(0.4))
      engine_.reset_prefix_cache({.preempt_running = random_.chance(0.5), .external = random_.chance(0.1)}, ignore);
    engine_.resume(ignore);
  }

  void ask() {
    engine_.explain("", [](const Result<std::vector<RequestExplanation>>& /*known*/) {});
    engine_.watch(std::make_shared<WatchFrame>(), [](const Result<std::shared_ptr<WatchFrame>>& /*frame*/) {});
    engine_.cache_curve(std::nullopt, [](const Result<EngineHitRateCurve>& /*curve*/) {});
    engine_.probe(draw_request(random_), [](const Result<EngineProbe>& /*found*/) {});
    (void)engine_.stats();
  }

  Engine& engine_;
  Collector& sink_;
  Random& random_;
  Met& met_;
  std::vector<RequestId> ids_, sessions_;
};

TEST(SmallLimits, AbortNoProgramWhateverClientsSend) {
  Met met;
  const std::uint64_t num_rounds = rounds_of(150);
  const auto has_met_all = [&met] {
    return std::ranges::count(std::array{met.num_refused_options, met.num_searches, met.num_forked, met.num_inputs, met.num_errors}, 0U) ==
           0;
  };
  for (std::uint64_t seed = 0; (seed < num_rounds || (seed < 600 && !has_met_all())) && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Random random(seed * 2 + 0x5eed);
    const Mode& mode = kModes[random.below(std::size(kModes))];
    EngineOptions options = draw_options(random);
    EngineOptions checked = options;
    checked.scheduler.async_scheduling = mode.async_scheduling;
    checked.speculation.num_speculative_tokens = mode.num_drafts;
    if (const auto resolved = resolve_options(checked, spelling_model(), {1, 0}); !resolved) {
      EXPECT_FALSE(resolved.error().field.empty());
      ++met.num_refused_options;
      continue;
    }
    ++met.num_engines;
    Collector sink;
    const auto engine = start(mode, {.options = options, .model = spelling_model()});
    Play play(*engine, sink, random, met);
    for (std::uint64_t i = random.between(5, 60); i > 0; --i) play.act();
    play.finish_all();
    engine->stop(0.0);
  }
  fmt::print(
      "{} engines and {} refused, {} requests taken, {} refusals, {} searches, {} forks, {} inputs, {} grammars, {} ended in error\n",
      met.num_engines, met.num_refused_options, met.num_taken, met.num_refused, met.num_searches, met.num_forked, met.num_inputs,
      met.num_grammars, met.num_errors);
  EXPECT_GT(met.num_engines, num_rounds / 3);
  EXPECT_TRUE(has_met_all()) << "too few events";
}

}  // namespace
}  // namespace quire
