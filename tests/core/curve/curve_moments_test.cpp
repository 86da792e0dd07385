// Tests the three moments of a request that count for the curve. The curve has a size for each number of blocks, so the smallest size that
// finds a block is known exactly.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/schedule/core_driver.h"
#include "quire/lab/curve.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

CurveOptions every_size(const CoreConfig& config, std::uint32_t largest) {
  CurveOptions options = CurveOptions::of(config);
  options.halve_after_s = 0.0;
  options.num_blocks = std::min(options.num_blocks, largest);
  options.sizes.resize(largest);
  std::iota(options.sizes.begin(), options.sizes.end(), std::uint64_t{1});
  return options;
}

struct Followed {
  explicit Followed(const CoreConfig& config, Connector* connector = nullptr, std::uint32_t largest = 200)
      : sampler(every_size(config, largest)), d(config, {.connector = connector, .events = &sampler}) {
    sampler.follow(*d.core);
  }

  void run(std::uint64_t id, const Tokens& prompt) {
    d.add(CoreDriver::request(id, prompt, 1));
    while (d.known(id)) d.step();
  }
  // Returns for each found block the smallest size that finds it.
  [[nodiscard]] std::vector<std::uint64_t> needed() const {
    const HitRateCurve curve = sampler.curve();
    std::vector<std::uint64_t> needed;
    double before = 0.0;
    for (std::size_t i = 0; i < curve.sizes.size(); ++i)
      for (; before < curve.all.hit_tokens[i]; before += curve.block_size) needed.push_back(curve.sizes[i]);
    return needed;
  }

  CurveSampler sampler;
  CoreDriver d;
};

using Sizes = std::vector<std::uint64_t>;

TEST(CurveMoments, EvictsTheFirstBlockOfAPromptLast) {
  Followed f(sync_config());
  const Tokens prompt = CoreDriver::prompt(1, 17);
  f.run(1, prompt);
  EXPECT_TRUE(f.needed().empty()) << "the first request finds nothing";
  f.run(2, prompt);
  // The request freed the partial fifth block first, and then the fourth to the first.
  EXPECT_EQ(f.needed(), (Sizes{1, 2, 3, 4}));
}

TEST(CurveMoments, CountsTheBlocksOfRunningRequests) {
  Followed f(sync_config());
  const Tokens prompt = CoreDriver::prompt(1, 17);
  f.run(1, prompt);
  f.d.add(2, 11, 9);  // 3 blocks
  f.d.step();
  f.d.add(CoreDriver::request(3, prompt, 1));
  f.d.step();
  EXPECT_EQ(f.needed(), (Sizes{4, 5, 6, 7}));
}

TEST(CurveMoments, FindsABlockAtNoSizeWhenTheLargestWouldHaveEvictedIt) {
  Followed f(sync_config(), nullptr, 6);
  const Tokens prompt = CoreDriver::prompt(1, 17);
  f.run(1, prompt);
  f.d.add(2, 11, 9);  // 3 blocks
  f.d.step();
  f.d.add(CoreDriver::request(3, prompt, 1));
  f.d.step();
  EXPECT_EQ(f.needed(), (Sizes{4, 5, 6})) << "the fourth block needs a size of seven";
}

TEST(CurveMoments, FindsBlocksOfARunningRequestAtEachSize) {
  Followed f(sync_config());
  const Tokens prompt = CoreDriver::prompt(1, 17);
  f.d.add(CoreDriver::request(1, prompt, 9));
  f.d.step();
  f.d.add(CoreDriver::request(2, prompt, 9));
  f.d.step();
  EXPECT_EQ(f.needed(), (Sizes{1, 1, 1, 1}));
}

TEST(CurveMoments, DoesNotCountBlocksThatWereNotComputed) {
  CoreConfig config = sync_config();
  config.scheduler.max_num_batched_tokens = 8;
  Followed f(config);
  const Tokens prompt = CoreDriver::prompt(1, 25);
  f.d.add(CoreDriver::request(1, prompt, 1));
  f.d.step();
  f.d.core->finish(RequestId{1}, RequestStatus::finished_aborted);
  f.run(2, prompt);
  EXPECT_EQ(f.needed(), (Sizes{1, 2})) << "two of six blocks were computed";
  EXPECT_EQ(f.sampler.curve().all.found_tokens, 8.0);
  f.run(3, prompt);
  EXPECT_EQ(f.needed(), (Sizes{1, 1, 2, 2, 3, 4, 5, 6}));
}

TEST(CurveMoments, FindsInvalidBlocksAtNoSize) {
  ScriptedConnector connector;
  CoreConfig config = sync_config();
  config.kv_load_failure = KvLoadFailurePolicy::fail;
  Followed f(config, &connector);
  const Tokens longer = CoreDriver::prompt(1, 29);
  f.run(1, Tokens(longer.begin(), longer.begin() + 17));
  connector.matches[RequestId{2}] = {.num_tokens = 8, .load_async = false};
  f.d.add(CoreDriver::request(2, longer, 9));
  f.d.plan();
  ASSERT_EQ(f.needed(), (Sizes{1, 2, 3, 4}));
  const std::vector<BlockId> invalid = {f.d.blocks(2)[4]};
  f.d.apply({}, {.step = {}, .has_connector_output = true, .invalid_blocks = invalid});
  ASSERT_FALSE(f.d.known(2));
  f.d.add(CoreDriver::request(3, longer, 9));
  f.d.step();
  EXPECT_EQ(f.sampler.curve().all.found_tokens, 16.0 + 16.0);
  EXPECT_EQ(f.sampler.curve().all.external_tokens, 8.0);
  EXPECT_EQ(f.needed().size(), 8U) << "no size finds blocks whose load failed";
}

// The invalid block was cached before, so the sample has its hash.
TEST(CurveMoments, FindsACachedBlockNoMoreOnceItIsInvalid) {
  ScriptedConnector connector;
  CoreConfig config = sync_config();
  config.kv_load_failure = KvLoadFailurePolicy::fail;
  Followed f(config, &connector);
  const Tokens prompt = CoreDriver::prompt(1, 14);
  f.run(1, prompt);
  f.d.add(CoreDriver::request(2, prompt, 9));
  f.d.plan();
  ASSERT_EQ(f.needed(), (Sizes{1, 2, 3}));
  const std::vector<BlockId> invalid = {f.d.blocks(2)[1]};
  f.d.apply({}, {.step = {}, .has_connector_output = true, .invalid_blocks = invalid});
  ASSERT_FALSE(f.d.known(2));
  f.run(3, prompt);
  EXPECT_EQ(f.needed().size(), 4U) << "only its first block is found again";
}

TEST(CurveMoments, IgnoresRequestsThatSkipReadingTheCache) {
  Followed f(sync_config());
  const Tokens prompt = CoreDriver::prompt(1, 17);
  f.run(1, prompt);
  NewRequest unread = CoreDriver::request(2, prompt, 1);
  unread.skip_reading_prefix_cache = true;
  f.d.add(unread);
  f.d.step();
  EXPECT_FALSE(f.d.known(2));
  EXPECT_EQ(f.sampler.curve().all.num_requests, 1.0);
  EXPECT_EQ(f.sampler.curve().all.query_tokens, 17.0);
}

TEST(CurveMoments, CountsLoadedTokensAsExternalAndALoadingRequestOnce) {
  for (const bool is_async : {false, true}) {
    ScriptedConnector connector;
    Followed f(sync_config(), &connector);
    const Tokens prompt = CoreDriver::prompt(1, 17);
    f.run(1, Tokens(prompt.begin(), prompt.begin() + 5));
    connector.matches[RequestId{2}] = {.num_tokens = 8, .load_async = is_async};
    f.d.add(CoreDriver::request(2, prompt, 1));
    f.d.plan();
    if (is_async) {
      const std::vector<RequestId> received = {RequestId{2}};
      f.d.apply({}, {.step = {}, .has_connector_output = true, .finished_receiving = received});
      f.d.plan();
    }
    f.d.apply();
    EXPECT_FALSE(f.d.known(2));
    const CurveCounts all = f.sampler.curve().all;
    EXPECT_EQ(all.num_requests, 2.0) << is_async;
    EXPECT_EQ(all.query_tokens, 22.0) << is_async;
    EXPECT_EQ(all.found_tokens, 4.0) << is_async;
    EXPECT_EQ(all.external_tokens, 8.0) << is_async;
  }
}

}  // namespace
}  // namespace quire::test
