// Tests the hit-rate curve for other cache sizes. The operator sees all requests, a tenant only its requests.
#include "server/operate/cache_curve.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/running_server.h"

namespace quire {
namespace {

namespace json = boost::json;

using CacheCurveTest = RunningServer;

CurveCounts counts(std::string tenant, double query, double found, std::vector<double> hits) {
  return {.tenant = std::move(tenant), .num_requests = 4, .query_tokens = query, .found_tokens = found, .hit_tokens = std::move(hits)};
}

EngineHitRateCurve example(double prefill_tokens_per_s) {
  return {.curve = {.num_blocks = 10,
                    .block_size = 16,
                    .sizes = {5, 10, 20},
                    .seconds = 100.0,
                    .all = counts({}, 1000, 500, {300, 480, 780}),
                    .tenants = {counts("them", 400, 100, {0, 100, 200}), counts("us", 600, 400, {300, 380, 580})}},
          .costs = {.block_bytes = 1024, .prefill_tokens_per_s = prefill_tokens_per_s, .named = {{"now + dram", 20}}}};
}

boost::json::object parsed(const ClientResponse& answer) {
  EXPECT_EQ(answer.status, 200U) << answer.body;
  return boost::json::parse(answer.body).as_object();
}

TEST_F(CacheCurveTest, HasOneRowPerSizeThroughTheMeasuredRate) {
  engine.curve = example(50.0);
  start();
  const ClientResponse answer = HttpClient(port).get("/v1/cache/curve");
  EXPECT_TRUE(answer.body.contains(R"("hit_rate":0.320000,)")) << answer.body;
  const boost::json::object reply = parsed(answer);
  EXPECT_EQ(reply.at("block_bytes").to_number<int>(), 1024);
  const boost::json::object& all = reply.at("curves").as_array().at(0).as_object();
  EXPECT_TRUE(all.at("tenant").is_null());
  const boost::json::array& rows = all.at("rows").as_array();
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_TRUE(rows[0].at("label").is_null());
  EXPECT_EQ(rows[1].at("label").as_string(), "now");
  EXPECT_EQ(rows[2].at("label").as_string(), "now + dram");
  EXPECT_EQ(rows[2].at("bytes").to_number<int>(), 20 * 1024);
  EXPECT_EQ(rows[2].at("factor").to_number<double>(), 2.0);
  EXPECT_NEAR(rows[0].at("hit_rate").to_number<double>(), 0.32, 1e-6) << "500 - (480 - 300) of 1,000";
  EXPECT_NEAR(rows[1].at("hit_rate").to_number<double>(), 0.5, 1e-6) << "the current size has the measured rate";
  EXPECT_NEAR(rows[2].at("hit_rate").to_number<double>(), 0.8, 1e-6);
  EXPECT_NEAR(rows[2].at("saved_prefill_tokens_per_s").to_number<double>(), 3.0, 1e-6) << "300 tokens in 100 s";
  EXPECT_NEAR(rows[2].at("saved_prefill_seconds_per_s").to_number<double>(), 0.06, 1e-6) << "at 50 tokens per second";
  EXPECT_EQ(reply.at("curves").as_array().size(), 3U) << "one curve for all requests and one per tenant";
}

TEST_F(CacheCurveTest, HitRateIncludesAtLeastTheHitsOfTheTiers) {
  engine.curve = example(50.0);
  engine.curve->curve.all.external_tokens = 420;
  start();
  const boost::json::object reply = parsed(HttpClient(port).get("/v1/cache/curve"));
  const boost::json::array& rows = reply.at("curves").as_array().at(0).as_object().at("rows").as_array();
  EXPECT_NEAR(rows.at(1).at("hit_rate").to_number<double>(), 0.5, 1e-6) << "the rate of the cache alone";
  EXPECT_NEAR(rows.at(2).at("hit_rate").to_number<double>(), 0.92, 1e-6) << "500 and 420 of 1,000, not the estimate of 0.8";
  EXPECT_NEAR(rows.at(2).at("saved_prefill_tokens_per_s").to_number<double>(), 4.2, 1e-6);
}

TEST_F(CacheCurveTest, BlocksOfUnknownSizeHaveNoFurtherBytes) {
  engine.curve = example(50.0);
  engine.curve->costs.block_bytes = 0;
  start();
  EXPECT_EQ(HttpClient(port).get("/v1/cache/curve?more_bytes=0").status, 200U);
  EXPECT_EQ(HttpClient(port).get("/v1/cache/curve?more_bytes=1").error_param(), "more_bytes");
}

TEST_F(CacheCurveTest, SavedSecondsAreNullWhenTheSpeedIsUnknown) {
  engine.curve = example(0.0);
  start();
  const boost::json::object reply = parsed(HttpClient(port).get("/v1/cache/curve"));
  EXPECT_TRUE(reply.at("prefill_tokens_per_s").is_null());
  EXPECT_TRUE(reply.at("curves").as_array().at(0).at("rows").as_array().at(2).at("saved_prefill_seconds_per_s").is_null());
}

TEST_F(CacheCurveTest, TenantSeesOnlyItsCurveAndTheOperatorAll) {
  engine.curve = example(50.0);
  ServerOptions options;
  options.api_key = "operators-key";
  options.tenant_keys = {{"us", "our-key"}, {"them", "their-key"}, {"silent", "silent-key"}};
  start(options);
  const auto ask = [this](const std::string& key) {
    return HttpClient(port).get("/v1/cache/curve", "Authorization: Bearer " + key + "\r\n");
  };
  const ClientResponse ours = ask("our-key");
  const boost::json::array own = parsed(ours).at("curves").as_array();
  ASSERT_EQ(own.size(), 1U);
  EXPECT_EQ(own[0].at("tenant").as_string(), "us");
  EXPECT_EQ(own[0].at("prompt_tokens").to_number<int>(), 600);
  EXPECT_EQ(ours.body.find("them"), std::string::npos);
  EXPECT_EQ(engine.curve_of, "us") << "the engine is asked for this tenant only";
  EXPECT_TRUE(parsed(ask("silent-key")).at("curves").as_array().empty()) << "the tenant has no requests";
  EXPECT_EQ(parsed(ask("operators-key")).at("curves").as_array().size(), 3U);
  EXPECT_EQ(engine.curve_of, std::nullopt);
  EXPECT_EQ(HttpClient(port).get("/v1/cache/curve").status, 401U);
}

TEST_F(CacheCurveTest, MoreBytesInterpolatesARowWithinTheCurve) {
  engine.curve = example(50.0);
  start();
  HttpClient client(port);
  EXPECT_EQ(parsed(client.get("/v1/cache/curve")).at("curves").as_array().at(0).as_object().if_contains("more"), nullptr);
  const boost::json::object reply = parsed(client.get("/v1/cache/curve?more_bytes=5120"));
  const boost::json::object& more = reply.at("curves").as_array().at(0).at("more").as_object();
  EXPECT_EQ(more.at("blocks").to_number<int>(), 15);
  EXPECT_EQ(more.at("bytes").to_number<int>(), 15 * 1024);
  EXPECT_NEAR(more.at("hit_rate").to_number<double>(), 0.65, 1e-6) << "the middle of 0.5 and 0.8";
  EXPECT_NEAR(more.at("saved_prefill_tokens_per_s").to_number<double>(), 1.5, 1e-6);
  EXPECT_NEAR(more.at("saved_prefill_seconds_per_s").to_number<double>(), 0.03, 1e-6);
  const boost::json::object all = parsed(client.get("/v1/cache/curve?more_bytes=10240"));
  EXPECT_EQ(all.at("curves").as_array().at(0).at("more").at("label").as_string(), "now + dram");
  for (const std::string value : {"10241", "18446744073709551615", "18446744073709551616", "-1", "8GiB", "1.5", "", "5&more_bytes=5"}) {
    const ClientResponse refused = client.get("/v1/cache/curve?more_bytes=" + value);
    EXPECT_EQ(refused.status, 400U) << value;
    EXPECT_NE(refused.body.find("more_bytes"), std::string::npos) << refused.body;
  }
  EXPECT_NE(client.get("/v1/cache/curve?more_bytes=10241").body.find("at most 10240"), std::string::npos);
  EXPECT_EQ(client.get("/v1/cache/curve?tenant=us").status, 400U) << "only the key selects the tenant";
}

TEST_F(CacheCurveTest, NamesTheFlagWhenCurvesAreOff) {
  start();
  const ClientResponse answer = HttpClient(port).get("/v1/cache/curve");
  EXPECT_EQ(answer.status, 400U);
  EXPECT_NE(answer.body.find("curve_blocks"), std::string::npos) << answer.body;
}

EngineHitRateCurve curve_of_sizes() {
  const auto counts = [](std::string tenant, std::vector<double> hits) {
    return CurveCounts{
        .tenant = std::move(tenant), .num_requests = 4, .query_tokens = 1000, .found_tokens = 500, .hit_tokens = std::move(hits)};
  };
  return {.curve = {.num_blocks = 10,
                    .block_size = 16,
                    .sizes = {5, 10, 20},
                    .seconds = 100.0,
                    .all = counts({}, {300, 480, 780}),
                    .tenants = {counts({}, {0, 1, 2}), counts("us", {300, 380, 580})}},
          .costs = {.block_bytes = 1024, .prefill_tokens_per_s = 0.0, .named = {}}};
}

TEST(CurveAnswers, EndWhereTheCurveEnds) {
  const EngineHitRateCurve known = curve_of_sizes();
  const auto more = [&](std::uint64_t bytes) {
    const auto text = cache_curve_json(known, {.tenant = {}, .more_bytes = bytes});
    if (!text) return text.error().to_string();
    const json::value row = json::parse(*text).at("curves").as_array().at(0).at("more");
    return json::serialize(row.at("blocks")) + " " + json::serialize(row.at("bytes"));
  };
  EXPECT_EQ(more(0), "10 10240");
  EXPECT_EQ(more(1023), "10 10240") << "less than a block";
  EXPECT_EQ(more(1024), "11 11264");
  EXPECT_EQ(more(10 * 1024), "20 20480");
  EXPECT_EQ(more(10 * 1024 + 1), "more_bytes: is 10241, beyond the end of the curve; send at most 10240");
  const json::value all = json::parse(cache_curve_json(known, {}).value());
  EXPECT_EQ(all.at("object"), "cache.curve");
  EXPECT_EQ(all.at("block_size"), 16);
  EXPECT_EQ(all.at("block_bytes"), 1024);
  EXPECT_EQ(all.at("blocks"), 10);
  EXPECT_EQ(all.at("seconds"), 100);
  EXPECT_TRUE(all.at("prefill_tokens_per_s").is_null());
  ASSERT_EQ(all.at("curves").as_array().size(), 2U) << "requests without a tenant have no separate curve";
  EXPECT_TRUE(all.at("curves").as_array()[0].at("tenant").is_null());
  EXPECT_EQ(all.at("curves").as_array()[1].at("tenant"), "us");
  EXPECT_FALSE(all.at("curves").as_array()[0].as_object().contains("more"));
  EXPECT_EQ(all.at("curves").as_array()[0].at("requests").to_number<int>(), 4);
  EXPECT_EQ(all.at("curves").as_array()[0].at("prompt_tokens").to_number<int>(), 1000);
  EXPECT_EQ(all.at("curves").as_array()[0].at("found_tokens").to_number<int>(), 500);
  const json::value own = json::parse(cache_curve_json(known, {.tenant = "us", .more_bytes = {}}).value());
  ASSERT_EQ(own.at("curves").as_array().size(), 1U);
  EXPECT_EQ(own.at("curves").as_array()[0].at("tenant"), "us");
}

}  // namespace
}  // namespace quire
