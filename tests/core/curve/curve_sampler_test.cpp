// Compares the predicted hit rates with the core's rates at each size. If one request runs at a time, the size affects only the hits.
// Prediction and truth are then equal, token by token, when all hashes are in the sample.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <list>
#include <map>
#include <unordered_map>

#include "core/journal/decision_digest.h"
#include "core/schedule/harness.h"
#include "quire/lab/curve.h"
#include "support/rounds.h"

namespace quire {
namespace {

using test::Harness;
using test::small_config;

struct Prompt {
  std::vector<TokenId> tokens;
  std::uint32_t num_outputs = 1;
  std::string tenant{};
};

// Some prompts begin like an earlier prompt and then diverge or end.
std::vector<Prompt> random_prompts(Random& random, std::size_t count, std::uint32_t max_tokens) {
  std::vector<Prompt> prompts;
  while (prompts.size() < count) {
    Prompt prompt;
    if (!prompts.empty() && random.chance(0.7)) {
      const std::size_t back = std::min(prompts.size(), std::size_t{1} << random.below(10));
      prompt.tokens = prompts[prompts.size() - random.between(1, back)].tokens;
      prompt.tokens.resize(random.between(1, prompt.tokens.size()));
    }
    const std::uint64_t more = random.below(max_tokens / 2);
    for (std::uint64_t i = 0; i < more + 1 && prompt.tokens.size() + 10 < max_tokens; ++i)
      prompt.tokens.push_back(static_cast<TokenId>(random.below(test::kVocabulary)));
    prompt.num_outputs = static_cast<std::uint32_t>(random.between(1, 8));
    prompt.tenant = std::string(1, static_cast<char>('a' + random.below(3)));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

// Returns per tenant the tokens that a core with this configuration finds when it runs one request after another.
std::map<std::string, std::uint64_t> found_by_core(const CoreConfig& config, std::span<const Prompt> prompts,
                                                   CurveSampler* sampler = nullptr, std::uint64_t* digest = nullptr) {
  const std::unique_ptr<Core> core = std::move(Core::create(config, {.events = sampler}).value());
  if (sampler != nullptr) sampler->follow(*core);
  std::map<std::string, std::uint64_t> found;
  for (std::uint64_t id = 0; id < prompts.size(); ++id) {
    const RequestTags tags{.tenant = prompts[id].tenant};
    const NewRequest request{.id = RequestId{id}, .prompt = prompts[id].tokens, .max_tokens = prompts[id].num_outputs, .tags = &tags};
    EXPECT_TRUE(core->add(request).has_value());
    while (core->has_work()) {
      const StepPlan& plan = core->schedule();
      std::vector<SampledToken> sampled;
      for (const ScheduledRequest& one : plan.scheduled)
        if (one.samples) sampled.push_back({one.id, static_cast<TokenId>((id * 7 + one.num_computed_tokens) % test::kVocabulary)});
      const std::uint64_t planned = digest_of(plan);
      const StepOutcome& outcome = **core->apply({.step = plan.step, .sampled = sampled});
      for (const FirstAdmission& one : outcome.first_admissions) found[prompts[id].tenant] += one.num_cached_tokens;
      if (digest != nullptr) *digest = test::mix(test::mix(*digest, planned), digest_of(outcome));
    }
  }
  return found;
}

CurveOptions exact(const CoreConfig& config) {
  CurveOptions options = CurveOptions::of(config);
  options.halve_after_s = 0.0;
  return options;
}

TEST(CurveSampler, MatchesTheCoreAtEachSizeWhenOneRequestRunsAtATime) {
  for (std::uint64_t seed = 1; seed <= rounds_of(10); ++seed) {
    Random random(seed);
    CoreConfig config = small_config(static_cast<std::uint32_t>(random.between(80, 160)) + 1);
    const std::vector<Prompt> prompts = random_prompts(random, 400, config.scheduler.max_model_len);
    CurveSampler sampler(exact(config));
    found_by_core(config, prompts, &sampler);
    const HitRateCurve curve = sampler.curve();
    EXPECT_EQ(curve.sampling_rate, 1.0);
    ASSERT_EQ(curve.tenants.size(), 3U);
    std::uint64_t num_compared = 0;
    for (std::size_t i = 0; i < curve.sizes.size(); ++i) {
      config.kv.num_blocks = static_cast<std::uint32_t>(curve.sizes[i]) + 1;
      // A smaller cache cannot run the longest prompts.
      if (curve.sizes[i] * config.block_size < config.scheduler.max_model_len) continue;
      ++num_compared;
      const std::map<std::string, std::uint64_t> truth = found_by_core(config, prompts);
      double sum = 0.0;
      for (const CurveCounts& tenant : curve.tenants) {
        EXPECT_EQ(tenant.hit_tokens[i], static_cast<double>(truth.at(tenant.tenant))) << seed << ", " << curve.sizes[i] << " blocks";
        EXPECT_EQ(hit_rates(curve, tenant)[i], tenant.hit_tokens[i] / tenant.query_tokens);
        sum += tenant.hit_tokens[i];
      }
      EXPECT_EQ(curve.all.hit_tokens[i], sum);
    }
    EXPECT_GE(num_compared, 8U);
    EXPECT_GT(curve.all.hit_tokens.back(), 1.2 * curve.all.hit_tokens.front()) << "the curve rises";
  }
}

// A naive cache: a list of free hashes with the next victim in front. Held hashes are not in the list. It has no reuse distances.
class NaiveCache {
 public:
  explicit NaiveCache(std::size_t num_blocks) : num_blocks_(num_blocks) {}

  // Returns the number of hashes up to the first missing one.
  [[nodiscard]] std::size_t find(std::span<const int> names) const {
    const auto is_lost = [&](int name) { return !holders_.contains(name) && !free_at_.contains(name); };
    return static_cast<std::size_t>(std::ranges::find_if(names, is_lost) - names.begin());
  }
  void hold(int name) {
    if (const auto at = free_at_.find(name); at != free_at_.end()) {
      free_.erase(at->second);
      free_at_.erase(at);
    }
    ++holders_[name];
    while (free_.size() + holders_.size() > num_blocks_ && !free_.empty()) {
      free_at_.erase(free_.front());
      free_.pop_front();
    }
  }
  // A block that has got another hash is not kept.
  void release(int name, bool stays) {
    if (--holders_[name] > 0) return;
    holders_.erase(name);
    if (stays) free_at_[name] = free_.insert(free_.end(), name);
  }

 private:
  std::size_t num_blocks_;
  std::list<int> free_;
  std::unordered_map<int, std::list<int>::iterator> free_at_;
  std::unordered_map<int, int> holders_;
};

// Runs concurrent requests and mirrors their blocks in a naive cache of each size.
class SideBySide {
 public:
  SideBySide(std::uint64_t seed, std::uint32_t max_tracked) : random_(seed), config_(small_config(401)), sampler_(options(max_tracked)) {
    config_.scheduler.max_num_batched_tokens = 400;  // whole prompts in one step
    harness_ = std::make_unique<Harness>(config_, CoreSeams{.events = &sampler_});
    harness_->check_outputs = false;
    sampler_.follow(*harness_->core);
    for (const std::uint64_t size : sampler_.curve().sizes) caches_.emplace_back(size);
    found_.resize(caches_.size());
  }

  void run(std::size_t num_requests) {
    const std::vector<Prompt> prompts = random_prompts(random_, num_requests, config_.scheduler.max_model_len);
    for (std::uint64_t id = 0; id < prompts.size() || !held_.empty();) {
      if (id < prompts.size() && held_.size() < 3 && random_.chance(0.6)) {
        begin(id, prompts[id]);
        ++id;
      } else if (!held_.empty()) {
        end(std::next(held_.begin(), static_cast<std::ptrdiff_t>(random_.below(held_.size())))->first);
      }
    }
  }

  // Returns the largest error of a hit rate. Sizes that cannot hold three requests are skipped.
  [[nodiscard]] double largest_error() const {
    const HitRateCurve curve = sampler_.curve();
    double largest = 0.0;
    for (std::size_t i = 0; i < caches_.size(); ++i)
      if (curve.sizes[i] >= 60)
        largest = std::max(largest, std::abs(hit_rates(curve, curve.all)[i] - static_cast<double>(found_[i]) / curve.all.query_tokens));
    return largest;
  }
  [[nodiscard]] double rise() const { return static_cast<double>(found_.back() - found_[2]) / sampler_.curve().all.query_tokens; }
  [[nodiscard]] double rate() const { return sampler_.curve().sampling_rate; }

 private:
  [[nodiscard]] CurveOptions options(std::uint32_t max_tracked) const {
    CurveOptions options = exact(config_);
    options.max_tracked = max_tracked;
    return options;
  }

  // Returns a number per block of a request: its content if it is full, otherwise a number unique to the request.
  [[nodiscard]] std::vector<int> names_of(std::uint64_t id) {
    const RequestView view = *harness_->core->view(RequestId{id});
    std::vector<int> names = names_of(view.tokens.first(view.num_computed_tokens));
    const std::size_t num_blocks = harness_->core->blocks(RequestId{id}, 0).size();
    names.resize(std::min(names.size(), num_blocks));
    while (names.size() < num_blocks) names.push_back(number_of("of " + std::to_string(id) + ", " + std::to_string(names.size())));
    return names;
  }
  [[nodiscard]] std::vector<int> names_of(std::span<const TokenId> tokens) {
    std::vector<int> names;
    std::string name;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      name += std::to_string(tokens[i]) + " ";
      if ((i + 1) % config_.block_size == 0) names.push_back(number_of(name));
    }
    return names;
  }
  int number_of(const std::string& name) { return numbers_.try_emplace(name, static_cast<int>(numbers_.size())).first->second; }

  void begin(std::uint64_t id, const Prompt& prompt) {
    const std::vector<int> asked = names_of(std::span(prompt.tokens).first(prompt.tokens.size() - 1));
    for (std::size_t i = 0; i < caches_.size(); ++i) found_[i] += config_.block_size * caches_[i].find(asked);
    harness_->add(id, prompt.tokens, 1000);
    held_[id] = {};
    harness_->step();
    for (auto& [running, names] : held_) {
      // The request has reached the maximum length.
      if (!harness_->core->view(RequestId{running})) continue;
      std::vector<int> now = names_of(running);
      for (NaiveCache& cache : caches_) {
        for (const int name : now) cache.hold(name);
        for (const int name : names) cache.release(name, std::ranges::find(now, name) != now.end());
      }
      names = std::move(now);
    }
    std::erase_if(held_, [&](const auto& one) {
      if (harness_->core->view(RequestId{one.first})) return false;
      give_back(one.second);
      return true;
    });
  }

  void end(std::uint64_t id) {
    give_back(names_of(id));
    held_.erase(id);
    harness_->finish(RequestId{id});
  }

  void give_back(const std::vector<int>& names) {
    for (NaiveCache& cache : caches_)
      for (auto name = names.rbegin(); name != names.rend(); ++name) cache.release(*name, true);
  }

  Random random_;
  CoreConfig config_;
  CurveSampler sampler_;
  std::unique_ptr<Harness> harness_;
  std::vector<NaiveCache> caches_;
  std::vector<std::uint64_t> found_;
  std::map<std::uint64_t, std::vector<int>> held_;
  std::map<std::string, int> numbers_;
};

// The rates differ slightly: a repeated prompt computes its last block again, so two blocks have one hash for a while.
TEST(CurveSampler, IsWithinOnePointOfNaiveCachesWhenRequestsRunConcurrently) {
  for (std::uint64_t seed = 1; seed <= rounds_of(10); ++seed) {
    SideBySide run(seed, 131072);
    run.run(600);
    EXPECT_EQ(run.rate(), 1.0);
    EXPECT_LT(run.largest_error(), 0.01) << seed;
    EXPECT_GT(run.rise(), 0.05) << "the hit rate depends on the size";
  }
}

TEST(CurveSampler, IsWithinFivePointsWhenAQuarterOfTheHashesIsSampled) {
  double sum = 0.0;
  std::uint64_t num_runs = 0;
  for (std::uint64_t seed = 1; seed <= rounds_of(10); ++seed, ++num_runs) {
    SideBySide run(seed, 800);
    run.run(1500);
    EXPECT_LE(run.rate(), 0.5);
    sum += run.largest_error();
  }
  EXPECT_LT(sum / static_cast<double>(num_runs), 0.05);
}

TEST(CurveSampler, ChangesNoDecision) {
  Random random(5);
  const CoreConfig config = small_config(60);
  const std::vector<Prompt> prompts = random_prompts(random, 200, config.scheduler.max_model_len);
  std::uint64_t with = 0, without = 0;
  CurveSampler sampler(exact(config));
  found_by_core(config, prompts, &sampler, &with);
  found_by_core(config, prompts, nullptr, &without);
  EXPECT_EQ(with, without);
  EXPECT_NE(with, 0U);
}

TEST(CurveSampler, GivesATenantOnlyItsOwnCounts) {
  Random random(6);
  const CoreConfig config = small_config(100);
  CurveSampler sampler(exact(config));
  found_by_core(config, random_prompts(random, 60, config.scheduler.max_model_len), &sampler);
  const HitRateCurve own = sampler.curve("b");
  ASSERT_EQ(own.tenants.size(), 1U);
  EXPECT_EQ(own.tenants[0].tenant, "b");
  EXPECT_EQ(own.all.query_tokens, 0.0);
  EXPECT_TRUE(own.all.hit_tokens.empty());
  EXPECT_TRUE(sampler.curve("nobody").tenants.empty());
  double sum = 0.0;
  for (const CurveCounts& tenant : sampler.curve().tenants) sum += tenant.num_requests;
  EXPECT_EQ(sampler.curve().all.num_requests, sum);
}

TEST(CurveSampler, CountsTenantsAboveTheLimitInTheTotalOnly) {
  Random random(7);
  const CoreConfig config = small_config(100);
  CurveOptions options = exact(config);
  options.max_tenants = 2;
  CurveSampler sampler(options);
  found_by_core(config, random_prompts(random, 60, config.scheduler.max_model_len), &sampler);
  EXPECT_EQ(sampler.curve().tenants.size(), 2U);
  EXPECT_EQ(sampler.curve().all.num_requests, 60.0);
}

TEST(CurveSampler, EmptiesEachSizeWhenTheCacheIsReset) {
  const CoreConfig config = small_config(100);
  CurveSampler sampler(exact(config));
  Harness harness(config, {.events = &sampler});
  harness.check_outputs = false;
  sampler.follow(*harness.core);
  const std::vector<TokenId> prompt(20, 7);
  harness.add(1, prompt, 2);
  harness.run_to_end();
  ASSERT_TRUE(harness.core->reset_prefix_cache().value());
  harness.add(2, prompt, 2);
  harness.run_to_end();
  EXPECT_EQ(sampler.curve().all.hit_tokens.back(), 0.0);
  harness.add(3, prompt, 2);
  harness.run_to_end();
  EXPECT_EQ(sampler.curve().all.hit_tokens.front(), 16.0) << "four of its five blocks are found since the last token is computed";
}

// The session is skipped in the same step in which the other request is looked up.
TEST(CurveSampler, CountsARequestWhileASessionWaitsForInput) {
  const CoreConfig config = small_config(100);
  CurveSampler sampler(exact(config));
  Harness harness(config, {.events = &sampler});
  harness.check_outputs = false;
  sampler.follow(*harness.core);
  const std::vector<TokenId> prompt(20, 7);
  ASSERT_TRUE(harness.core->add({.id = RequestId{1}, .prompt = prompt, .max_tokens = 2, .resumable = true}).has_value());
  harness.alive[RequestId{1}] = std::make_unique<test::Expectation>();
  for (int i = 0; i < 4; ++i) harness.step();
  ASSERT_EQ(harness.core->view(RequestId{1})->status, RequestStatus::waiting_for_input);
  harness.add(2, prompt, 2);
  for (int i = 0; i < 4; ++i) harness.step();
  EXPECT_EQ(sampler.curve().all.num_requests, 2.0);
  EXPECT_EQ(sampler.curve().all.hit_tokens.front(), 16.0) << "the session holds the blocks, so each size finds them";
  harness.finish(RequestId{1});
}

TEST(CurveSampler, InterpolatesBetweenTwoSizes) {
  const std::vector<CurveRow> rows = {
      {.num_blocks = 10, .num_bytes = 1000, .label = "now", .hit_rate = 0.25, .saved_tokens_per_s = 0.0, .saved_s_per_s = 0.0},
      {.num_blocks = 20, .num_bytes = 2000, .hit_rate = 0.75, .saved_tokens_per_s = 8.0, .saved_s_per_s = 4.0},
      {.num_blocks = 40, .num_bytes = 4000, .hit_rate = 0.75, .saved_tokens_per_s = 8.0}};
  const CurveRow between = curve_row_at(rows, 15).value();
  EXPECT_EQ(between.num_bytes, 1500U);
  EXPECT_EQ(between.label, "");
  EXPECT_EQ(between.hit_rate, 0.5);
  EXPECT_EQ(between.saved_tokens_per_s, 4.0);
  EXPECT_EQ(between.saved_s_per_s, 2.0);
  EXPECT_EQ(curve_row_at(rows, 10)->label, "now");
  EXPECT_EQ(curve_row_at(rows, 30)->saved_s_per_s, std::nullopt);
  EXPECT_EQ(curve_row_at(rows, 40)->num_bytes, 4000U);
  EXPECT_FALSE(curve_row_at(rows, 9).has_value());
  EXPECT_FALSE(curve_row_at(rows, 41).has_value());
}

TEST(CurveSampler, OldCountsAreHalved) {
  for (const double halve_after_s : {60.0, 0.5}) {
    const CoreConfig config = small_config(100);
    CurveOptions options = exact(config);
    options.halve_after_s = halve_after_s;
    CurveSampler sampler(options);
    Harness harness(config, {.events = &sampler});
    harness.check_outputs = false;
    sampler.follow(*harness.core);
    const std::vector<TokenId> prompt(20, 7);
    harness.add(1, prompt, 2);
    harness.run_to_end();
    harness.now = 61.0;
    harness.add(2, prompt, 2);
    harness.run_to_end();
    EXPECT_EQ(sampler.curve().all.num_requests, 1.5);
    EXPECT_EQ(sampler.curve().all.query_tokens, 30.0);
    EXPECT_EQ(sampler.curve().seconds, 30.5);
  }
}

TEST(CurveSampler, OldHitsAreHalvedAtEachSize) {
  const CoreConfig config = small_config(100);
  CurveOptions options = exact(config);
  options.halve_after_s = 60.0;
  CurveSampler sampler(options);
  Harness harness(config, {.events = &sampler});
  harness.check_outputs = false;
  sampler.follow(*harness.core);
  for (const std::uint64_t id : {1U, 2U}) {
    harness.add(id, std::vector<TokenId>(20, 7), 2);
    harness.run_to_end();
  }
  const std::vector<double> before = sampler.curve().all.hit_tokens;
  ASSERT_GT(before.back(), 2.0);
  harness.now = 61.0;
  harness.add(3, std::vector<TokenId>(20, 8), 2);
  harness.run_to_end();
  const std::vector<double> after = sampler.curve().all.hit_tokens;
  ASSERT_EQ(after.size(), before.size());
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(after[i], before[i] / 2) << i;
}

TEST(HitRates, DivideByASingleQueriedToken) {
  HitRateCurve curve;
  curve.num_blocks = 20;
  curve.sizes = {10, 20};
  const CurveCounts one{.query_tokens = 1.0, .found_tokens = 0.5, .hit_tokens = {0.25, 0.5}};
  EXPECT_EQ(hit_rates(curve, one), (std::vector<double>{0.25, 0.5}));
  const CurveCounts none{.hit_tokens = {0.0, 0.0}};
  EXPECT_EQ(hit_rates(curve, none), (std::vector<double>{0.0, 0.0}));
}

}  // namespace
}  // namespace quire
