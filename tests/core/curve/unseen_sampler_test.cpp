// A sampler changes no decision. Random runs with preemption, forks, sessions, connectors and layers of every kind make the same plans when
// they are replayed with a sampler. A sampler allocates its memory when it is created.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/journal/random_run.h"
#include "core/schedule/harness.h"
#include "quire/lab/curve.h"
#include "support/count_allocations.h"
#include "support/decision_record.h"
#include "support/rounds.h"

namespace quire::test {
namespace {

bool has_curve(const CoreConfig& config) {
  return config.prefix_cache.enable_prefix_caching && !config.prefix_cache.lifo_free_blocks;
}

// Returns a digest of the curve's values, rounded to sixteenths.
std::uint64_t digest_of_curve(const HitRateCurve& curve) {
  std::uint64_t digest = mix(curve.num_tracked, curve.sizes.size());
  const auto add = [&digest](double value) { digest = mix(digest, static_cast<std::uint64_t>(std::llround(value * 16.0))); };
  const auto add_counts = [&add](const CurveCounts& counts) {
    for (const double count : {counts.num_requests, counts.query_tokens, counts.found_tokens, counts.external_tokens}) add(count);
    for (const double tokens : counts.hit_tokens) add(tokens);
  };
  for (const std::uint64_t size : curve.sizes) add(static_cast<double>(size));
  for (const double value : {1.0 / curve.sampling_rate, curve.pool_blocks_per_block, curve.seconds}) add(value);
  add_counts(curve.all);
  for (const CurveCounts& counts : curve.tenants) add_counts(counts);
  return digest;
}

// The curve of each run must match the record.
TEST(UnseenSampler, RandomRunsMakeTheSamePlansWithIt) {
  DecisionRecord record("tests/golden/decisions_curves.txt");
  double num_requests = 0.0, found_tokens = 0.0;
  std::uint64_t num_steps = 0;
  for (std::uint64_t seed = 0; seed < rounds_of(300); ++seed) {
    RecordedRun run(seed);
    if (!has_curve(run.config)) continue;
    CurveOptions options = CurveOptions::of(run.config, seed % 2 == 0 ? 131072 : 16);
    options.max_tenants = 1 + seed % 3;
    CurveSampler sampler(options);
    SeamPlayer player(run.answers(), &sampler);
    const auto core = std::move(Core::create(run.config, player.seams()).value());
    sampler.follow(*core);
    const std::vector<std::uint8_t> calls = run.calls();
    CoreCallReader reader(calls);
    std::string plans;
    while (reader.next().value()) {
      if (const StepPlan* plan = reader.play(*core)) plans += text_of(*plan);
      ASSERT_TRUE(player.status().has_value()) << player.status().error().to_string();
    }
    ASSERT_EQ(plans, run.plans) << "seed " << seed;
    const HitRateCurve curve = sampler.curve();
    EXPECT_LE(curve.all.found_tokens + curve.all.external_tokens, curve.all.query_tokens) << "seed " << seed;
    EXPECT_LE(curve.num_tracked, options.max_tracked);
    record.expect(digest_of_curve(curve));
    num_requests += curve.all.num_requests;
    found_tokens += curve.all.found_tokens;
    num_steps += run.num_steps;
  }
  EXPECT_GT(num_steps, rounds_of(5000));
  EXPECT_GT(num_requests, static_cast<double>(rounds_of(1500))) << "the test covers too few cases";
  EXPECT_GT(found_tokens, static_cast<double>(rounds_of(200)));
}

// Counts allocations while a sampler receives events.
class Counting final : public EventSink {
 public:
  explicit Counting(EventSink& to) : to_(&to) {}
  void on_event(const Event& event) override {
    const std::uint64_t before = test::num_allocations;
    to_->on_event(event);
    num_allocations += test::num_allocations - before;
  }
  std::uint64_t num_allocations = 0;

 private:
  EventSink* to_;
};

TEST(UnseenSampler, AllocatesMemoryOnlyForNewTenants) {
  if (!QUIRE_COUNTS_ALLOCATIONS) GTEST_SKIP() << "ThreadSanitizer has a separate operator new, so allocations are not counted";
  const CoreConfig config = small_config(60);
  CurveOptions options = CurveOptions::of(config, 100);  // fewer hashes than the run has, so the rate is halved and hashes are dropped
  options.halve_after_s = 5.0;
  CurveSampler sampler(options);
  Counting counting(sampler);
  Harness harness(config, {.events = &counting});
  harness.check_outputs = false;
  sampler.follow(*harness.core);
  const RequestTags tags[] = {{.tenant = "a tenant whose name is longer than what a string has room for in itself"}, {.tenant = "b"}};
  Random random(3);
  const auto run = [&](std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t id = first; id < first + count; ++id) {
      std::vector<TokenId> prompt(random.between(4, 30), static_cast<TokenId>(random.below(8)));
      prompt.back() = static_cast<TokenId>(random.below(kVocabulary));
      ASSERT_TRUE(harness.core->add({.id = RequestId{id}, .prompt = prompt, .max_tokens = 6, .tags = &tags[id % 2]}).has_value());
      harness.alive[RequestId{id}] = std::make_unique<Expectation>();
      harness.now += 0.25;
      if (id % 4 == 0) harness.run_to_end();
    }
    harness.run_to_end();
  };
  run(1, 40);
  const double rate_at_first = sampler.curve().sampling_rate;
  const std::uint64_t before = counting.num_allocations;
  EXPECT_GT(before, 0U) << "allocations are counted";
  run(100, 1000);
  EXPECT_EQ(counting.num_allocations - before, 0U);
  EXPECT_LE(sampler.curve().sampling_rate, rate_at_first);
  EXPECT_EQ(sampler.curve().tenants.size(), 2U);
}

}  // namespace
}  // namespace quire::test
