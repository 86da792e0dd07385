// Asks a running engine for its hit rate curve: what caches of other sizes would find. The engine answers between two steps, in total and
// per tenant, or reports why it has no curve.
#include "quire/lab/curve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "engine/simulated_engine.h"
#include "engine/tiers/disk_tier.h"
#include "engine/tiers/dram_tier.h"
#include "runtime/tier/tier_support.h"
#include "support/pipe.h"
#include "support/small_cache.h"

namespace quire {
namespace {

using test::kSmallBlockBytes;
using test::small_cache;

constexpr std::uint32_t kSmaller = 60, kLarger = 240;  // blocks; the larger size is one of the sizes of the first engine's curve
constexpr const char* kTenants[] = {"them", "us"};

EngineOptions cache_of(std::uint32_t num_usable_blocks) {
  EngineOptions options = small_cache();
  options.cache.num_blocks = num_usable_blocks + 1;
  return options;
}

Result<EngineHitRateCurve> curve_of(Engine& engine, std::optional<std::string> tenant = std::nullopt) {
  std::promise<Result<EngineHitRateCurve>> answer;
  engine.cache_curve(std::move(tenant), [&](Result<EngineHitRateCurve> told) { answer.set_value(std::move(told)); });
  return answer.get_future().get();
}

struct Asked {
  std::uint32_t num_requests = 0, num_tokens = 0, num_found = 0;
};

// Sends requests of several prefix families one by one and returns by tenant what the answers report as found. Recent families repeat more
// often. Each prompt has a unique end: a repeated whole prompt recomputes its last block, and two blocks would share a hash for a while.
std::map<std::string, Asked> ask_one_by_one(Engine& engine) {
  std::map<std::string, Asked> asked;
  Collector sink;
  Random random(17);
  TokenId family = 0;
  for (int i = 0; i < 60; ++i) {
    const auto back = static_cast<TokenId>(random.below(random.chance(0.5) ? 3 : 12));
    EngineRequest request = make_request(40, 4, 1 + (family++ + 12 - back) % 12 * 11);
    request.prompt.insert(request.prompt.end(), {static_cast<TokenId>(150 + i % 40), static_cast<TokenId>(150 + i / 40)});
    request.tags.tenant = kTenants[i % 2];
    const Collector::Answer answer = sink.wait(engine.submit(request, sink).value());
    expect_equal(answer, expected(request));
    Asked& of_tenant = asked[request.tags.tenant];
    ++of_tenant.num_requests;
    of_tenant.num_tokens += static_cast<std::uint32_t>(request.prompt.size());
    of_tenant.num_found += answer.num_cached_tokens;
  }
  return asked;
}

double hit_rate_at(const HitRateCurve& curve, const CurveCounts& counts, std::uint64_t num_blocks) {
  const auto size = std::ranges::find(curve.sizes, num_blocks);
  if (size == curve.sizes.end()) return -1.0;
  return hit_rates(curve, counts)[static_cast<std::size_t>(size - curve.sizes.begin())];
}

class CurveOfEngine : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, CurveOfEngine, testing::ValuesIn(played_modes()), mode_name);

TEST_P(CurveOfEngine, MatchesMeasuredHitsAtItsOwnSizeAndAtALargerSize) {
  const auto smaller = start(GetParam(), {.options = cache_of(kSmaller)});
  const std::map<std::string, Asked> found = ask_one_by_one(*smaller);
  const EngineHitRateCurve known = curve_of(*smaller).value();
  const std::map<std::string, Asked> more = ask_one_by_one(*start(GetParam(), {.options = cache_of(kLarger)}));
  EXPECT_EQ(known.curve.num_blocks, kSmaller);
  EXPECT_EQ(known.curve.sampling_rate, 1.0);
  EXPECT_LT(known.curve.num_bytes, 32U << 20U);
  EXPECT_GT(known.costs.block_bytes, 0U);
  ASSERT_EQ(known.curve.tenants.size(), 2U);
  double sum = 0.0;
  for (const CurveCounts& tenant : known.curve.tenants) {
    const Asked& here = found.at(tenant.tenant);
    const Asked& there = more.at(tenant.tenant);
    EXPECT_EQ(tenant.num_requests, here.num_requests);
    EXPECT_EQ(tenant.query_tokens, here.num_tokens);
    EXPECT_EQ(tenant.found_tokens, here.num_found);
    EXPECT_GT(there.num_found, here.num_found) << "the larger cache must find more";
    EXPECT_DOUBLE_EQ(hit_rate_at(known.curve, tenant, kSmaller), here.num_found / tenant.query_tokens);
    EXPECT_NEAR(hit_rate_at(known.curve, tenant, kLarger), there.num_found / tenant.query_tokens, 0.01) << tenant.tenant;
    sum += tenant.query_tokens;
  }
  EXPECT_EQ(known.curve.all.query_tokens, sum);
  const HitRateCurve ours = curve_of(*smaller, "us")->curve;
  ASSERT_EQ(ours.tenants.size(), 1U);
  EXPECT_EQ(ours.tenants[0].query_tokens, found.at("us").num_tokens);
  EXPECT_EQ(ours.all.query_tokens, 0.0) << "the answer does not reveal other tenants' tokens";
  EXPECT_EQ(smaller->stop(60.0), 0U);
  EXPECT_EQ(curve_of(*smaller).error().code, ErrorCode::shutting_down);
}

// There are few blocks, so the scheduler preempts requests and evicts prefixes. Answers must not change, and each request counts once.
TEST_P(CurveOfEngine, QueriesUnderLoadDoNotChangeAnswers) {
  Collector sink;
  const auto engine = start(GetParam(), {.options = small_cache()});
  Random random(73);
  std::map<RequestId, Expected> wanted;
  for (std::uint32_t i = 0; i < test::kSmallRequests; ++i) {
    const EngineRequest request = random_request(random);
    wanted[engine->submit(request, sink).value()] = expected(request);
    const Result<EngineHitRateCurve> known = curve_of(*engine);
    ASSERT_TRUE(known.has_value());
    EXPECT_LE(known->curve.all.num_requests, i + 1);
  }
  for (const auto& [id, answer] : wanted) expect_equal(sink.wait(id), answer);
  EXPECT_EQ(curve_of(*engine)->curve.all.num_requests, test::kSmallRequests);
  EXPECT_EQ(engine->stop(60.0), 0U);
  EXPECT_EQ(engine->stats().num_free_blocks, engine->stats().num_blocks);
}

TEST(CurveOfAnEngine, IsRefusedWhenTheEngineHasNoCurve) {
  EngineOptions off = small_cache(), uncached = small_cache(), last_first = small_cache();
  off.curve_blocks = 0;
  uncached.cache.enable_prefix_caching = false;
  last_first.cache.lifo_free_blocks = true;
  for (const auto& [options, field] :
       {std::pair(off, "curve_blocks"), {uncached, "enable_prefix_caching"}, {last_first, "lifo_free_blocks"}}) {
    Collector sink;
    const auto engine = start(kModes[0], {.options = options});
    const EngineRequest request = make_request(40, 4);
    expect_equal(sink.wait(engine->submit(request, sink).value()), expected(request));
    const Result<EngineHitRateCurve> known = curve_of(*engine);
    ASSERT_FALSE(known.has_value());
    EXPECT_EQ(known.error().code, ErrorCode::unsupported);
    EXPECT_EQ(known.error().field, field);
    EXPECT_FALSE(known.error().remedy.empty());
  }
}

TEST(CurveOfAnEngine, IsEmptyBeforeTheFirstRequest) {
  const auto engine = start(kModes[0], {.options = small_cache()});
  const EngineHitRateCurve known = curve_of(*engine).value();
  EXPECT_EQ(known.curve.all.num_requests, 0.0);
  EXPECT_TRUE(known.curve.tenants.empty());
  for (const CurveRow& row : curve_rows(known.curve, known.curve.all, known.costs)) {
    EXPECT_EQ(row.hit_rate, 0.0);
    EXPECT_EQ(row.saved_tokens_per_s, 0.0);
    EXPECT_EQ(row.saved_s_per_s, std::nullopt) << "the prefill rate is unknown";
  }
}

// A tier keeps copies of the cached blocks: the cache and the tier together find about as much as a cache of the tier's size.
TEST(CurveOfAnEngine, PredictsTheHitRateOfEachTierBelow) {
  const test::TempFolder folder;
  quire::Setup setup{.options = small_cache()};
  const CoreConfig config = resolve_options(setup.options, simulated_model(), {1, 0}).value().core;
  constexpr std::uint32_t kPlaces = 200;
  const KvDramOptions dram{.bytes = kPlaces * kSmallBlockBytes, .policy = KvTierPolicy::exact};
  setup.tiers.push_back(DramTier::create(dram, config, test::small_layout()).value());
  setup.tiers.push_back(DiskTier::open({.folder = folder.path(), .budget_bytes = 16 << 20, .policy = KvTierPolicy::exact}, config,
                                       test::small_layout(), test::tier_fingerprint(1))
                            .value());
  ASSERT_TRUE(connect_tiers(setup.tiers, setup.seams));
  const auto engine = start(kModes[1], setup);
  while (engine->stats().kv_tiers.at(1).num_unread_slots > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ask_one_by_one(*engine);
  const EngineHitRateCurve known = curve_of(*engine).value();
  const std::uint64_t on_disk = engine->stats().kv_tiers.at(1).num_places;
  const std::vector<std::pair<std::string, std::uint64_t>> named = {{"now + dram", kPlaces}, {"now + dram + disk", on_disk}};
  EXPECT_EQ(known.costs.named, named);
  const CurveCounts& all = known.curve.all;
  EXPECT_GT(all.external_tokens, 0.0) << "no token came from a tier";
  // The values differ: blocks of ended requests occupy space while they are being stored. Only the measured row of the current size
  // includes them.
  const double with_tiers = (all.found_tokens + all.external_tokens) / all.query_tokens;
  EXPECT_NEAR(hit_rate_at(known.curve, all, on_disk), with_tiers, 0.12);
  EXPECT_GT(hit_rate_at(known.curve, all, on_disk), hit_rate_at(known.curve, all, kSmaller - 1) + 0.1);
  EXPECT_EQ(engine->stop(60.0), 0U);
}

}  // namespace
}  // namespace quire
