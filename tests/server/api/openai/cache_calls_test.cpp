// Tests /v1/cache/probe and /v1/cache/warm, and completions that start only when their prompt is cached.
#include <boost/json.hpp>
#include <string>
#include <vector>

#include "server/running_server.h"

namespace quire {
namespace {

namespace json = boost::json;

using CacheCallsTest = RunningServer;

EngineProbe probe_of(std::uint32_t num_tokens, std::uint32_t num_local, std::uint32_t num_external = 0) {
  EngineProbe probe;
  probe.cache.num_tokens = num_tokens;
  probe.cache.num_local_tokens = num_local;
  if (num_external > 0) probe.cache.external = {{.tier = 0, .num_tokens = num_external, .load_async = true}};
  return probe;
}

TEST_F(CacheCallsTest, ProbeReportsCachedTokensAndPredictedTimes) {
  engine.told_stats().kv_tiers = {{.name = "dram"}};
  EngineProbe probe = probe_of(100, 48, 32);
  probe.wait_s = 0.5;
  probe.load_s = 0.25;
  probe.compute_s = 1.0;
  engine.find(probe);
  start();
  const auto told = post("/v1/cache/probe", R"({"messages": [{"role": "user", "content": "yo"}]})").json();
  EXPECT_EQ(told.at("object"), "cache.probe");
  EXPECT_EQ(told.at("prompt_tokens"), 100);
  EXPECT_EQ(told.at("cached_tokens"), 80);
  EXPECT_EQ(told.at("missed_tokens"), 20);
  EXPECT_EQ(boost::json::serialize(told.at("found")), R"([{"tier":"memory","tokens":48},{"tier":"dram","tokens":32}])");
  EXPECT_EQ(told.at("tiers_known"), true);
  EXPECT_EQ(told.at("predicted").at("ttft_s").to_number<double>(), 1.75);
  ASSERT_EQ(engine.probed().size(), 1U);
  EXPECT_EQ(tokens_to_bytes(engine.probed()[0].prompt), "<user>yo<assistant>");
  EXPECT_EQ(engine.num_submitted(), 0U) << "nothing is computed";
}

TEST_F(CacheCallsTest, ProbeReportsNullForTimesNotYetMeasured) {
  engine.find(probe_of(10, 0));
  start();
  const auto told = post("/v1/cache/probe", R"({"prompt": "abc"})").json();
  EXPECT_TRUE(told.at("predicted").at("ttft_s").is_null());
  EXPECT_TRUE(told.at("predicted").at("wait_s").is_null());
}

// Without a secret, tenants share blocks, but a probe does not report another tenant's blocks.
TEST_F(CacheCallsTest, ProbeReportsOnlyTheTenantsBlocksWithoutASecret) {
  for (const char* secret : {"", "secret"}) {
    ServerOptions options;
    options.tenant_secret = secret;
    options.api_key = "own-key";
    options.tenant_keys = {{"us", "our-key"}};
    start(options);
    const std::size_t num_before = engine.probed().size();
    for (const char* key : {"our-key", "own-key"}) {
      const std::string header = "Authorization: Bearer " + std::string(key) + "\r\n";
      EXPECT_EQ(post("/v1/cache/probe", R"({"prompt": "abc"})", header).status, 200U);
    }
    ASSERT_EQ(engine.probed().size(), num_before + 2);
    EXPECT_EQ(engine.probed()[num_before].probes_tenant_blocks, *secret == '\0');
    EXPECT_FALSE(engine.probed()[num_before + 1].probes_tenant_blocks) << "the operator is not a tenant";
    stop_and_flush();
  }
}

TEST_F(CacheCallsTest, ProbeUsesTheTenantsSalt) {
  ServerOptions options;
  options.tenant_secret = "secret";
  options.tenant_keys = {{"us", "our-key"}, {"them", "their-key"}};
  start(options);
  for (const char* key : {"our-key", "their-key"})
    EXPECT_EQ(post("/v1/cache/probe", R"({"prompt": "abc"})", "Authorization: Bearer " + std::string(key) + "\r\n").status, 200U);
  ASSERT_EQ(engine.probed().size(), 2U);
  EXPECT_NE(engine.probed()[0].cache_salt, engine.probed()[1].cache_salt);
  EXPECT_NE(engine.probed()[0].cache_salt, "");
  EXPECT_EQ(post("/v1/cache/probe", R"({"prompt": "abc"})").status, 401U);
}

TEST_F(CacheCallsTest, WarmComputesThePromptAndSamplesNothing) {
  engine.pool_with([](const EngineRequest&) { return std::vector<float>{1.0F}; });
  engine.find(probe_of(3, 0));
  start();
  const auto told = post("/v1/cache/warm", R"({"prompt": "abc"})").json();
  EXPECT_EQ(told.at("object"), "cache.warm");
  EXPECT_EQ(told.at("missed_tokens"), 3);
  ASSERT_EQ(engine.num_submitted(), 1U);
  EXPECT_TRUE(engine.at(0).request.pooling);
  EXPECT_EQ(tokens_to_bytes(engine.at(0).request.prompt), "abc");
}

TEST_F(CacheCallsTest, FailIfNotCachedRefusesUncachedPrompts) {
  engine.answer_with("hi");
  engine.find(probe_of(100, 64));
  start();
  const ClientResponse refused = post("/v1/completions", R"({"prompt": "abc", "fail_if_not_cached": true})");
  EXPECT_EQ(refused.status, 412U);
  EXPECT_EQ(refused.json().at("error").at("param"), "fail_if_not_cached");
  EXPECT_EQ(engine.num_submitted(), 0U);
  engine.find(probe_of(100, 96));
  const auto answer = post("/v1/completions", R"({"prompt": "abc", "fail_if_not_cached": true})").json();
  EXPECT_EQ(answer.at("choices").as_array()[0].at("text"), "hi");
  const ClientResponse streamed = post("/v1/completions", R"({"prompt": "abc", "stream": true, "fail_if_not_cached": true})");
  EXPECT_FALSE(stream_events(streamed.body).empty());
}

TEST_F(CacheCallsTest, RefusesSeveralPrompts) {
  start();
  EXPECT_EQ(post("/v1/cache/probe", R"({"prompt": ["a", "b"]})").status, 400U);
  const auto refused = post("/v1/completions", R"({"prompt": ["a", "b"], "fail_if_not_cached": true})");
  EXPECT_EQ(refused.status, 400U);
  EXPECT_EQ(refused.json().at("error").at("param"), "fail_if_not_cached");
}

TEST_F(CacheCallsTest, ReturnsUnavailableWhenTheEngineShutsDown) {
  engine.find(fail(ErrorCode::shutting_down, "", "the engine is shutting down"));
  start();
  EXPECT_EQ(post("/v1/cache/probe", R"({"prompt": "abc"})").status, 503U);
  EXPECT_EQ(post("/v1/cache/warm", R"({"prompt": "abc"})").status, 503U);
}

EngineProbe probe_with(std::uint32_t num_tokens, std::uint32_t num_local) {
  EngineProbe probe;
  probe.cache.num_tokens = num_tokens;
  probe.cache.num_local_tokens = num_local;
  return probe;
}

TEST_F(CacheCallsTest, WarmingHasThePriorityTenantAndSaltOfTheRequest) {
  engine.pool_with([](const EngineRequest&) { return std::vector<float>{1.0F}; });
  EngineProbe probe = probe_with(100, 40);
  probe.cache.external = {{.tier = 1, .num_tokens = 10, .load_async = true}};
  engine.find(probe);
  engine.told_stats().kv_tiers = {{.name = "dram"}};
  engine.add_adapter({.name = "tuned", .path = "/tuned", .digest = "", .is_resident = true});
  start({.tenant_keys = {{"us", "k"}}});
  const ClientResponse warm =
      post("/v1/cache/warm", R"({"prompt":"abc","priority":-5,"cache_salt":"s","model":"tuned"})", "Authorization: Bearer k\r\n");
  ASSERT_EQ(warm.status, 200U) << warm.body;
  EXPECT_EQ(warm.json(), json::parse(R"({"object":"cache.warm","prompt_tokens":100,"cached_tokens":50,"missed_tokens":50,
      "found":[{"tier":"memory","tokens":40},{"tier":"connector","tokens":10}],"tiers_known":true})"));
  const EngineRequest request = engine.at(0).request;
  EXPECT_TRUE(request.pooling);
  EXPECT_EQ(request.priority, -5);
  EXPECT_EQ(request.cache_salt, "s");
  EXPECT_EQ(request.tags.tenant, "us");
  EXPECT_EQ(request.adapter, "tuned");
  EXPECT_NE(request.adapter_lease, nullptr);
  EXPECT_EQ(request.sampling.max_tokens, 1U);
  EXPECT_EQ(tokens_to_bytes(request.prompt), "abc");
}

TEST_F(CacheCallsTest, ProbesReportTimesAndTiers) {
  EngineProbe probe = probe_with(10, 4);
  probe.wait_s = 1.0;
  probe.load_s = 2.0;
  engine.find(probe);
  start();
  EXPECT_EQ(post("/v1/cache/probe", R"({"prompt":"abc"})").json().at("predicted"),
            json::parse(R"({"ttft_s":null,"wait_s":1,"load_s":2,"compute_s":null})"))
      << "the sum needs all times";
  EXPECT_EQ(post("/v1/cache/probe", R"({"prompt":["a","b"]})").error_message(),
            "prompt: contains several prompts; send a separate request for each prompt");
}

TEST_F(CacheCallsTest, OneMissedBlockCountsAsCached) {
  engine.answer_with("hi");
  start();
  const std::uint32_t block = engine.options().cache.block_size;
  const std::string body = R"({"prompt":"abc","fail_if_not_cached":true})";
  engine.find(probe_with(1000, 1000 - block));
  EXPECT_EQ(post("/v1/completions", body).status, 200U);
  engine.find(probe_with(1000, 1000 - block - 1));
  const ClientResponse refused = post("/v1/completions", body);
  EXPECT_EQ(refused.status, 412U);
  EXPECT_EQ(refused.error_message(), "fail_if_not_cached: " + std::to_string(block + 1) +
                                         " of 1000 tokens of the prompt are not in the cache; call POST /v1/cache/warm first, or leave it "
                                         "out");
}

}  // namespace
}  // namespace quire
