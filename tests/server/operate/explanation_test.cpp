// Tests the explanation of a request, and that no client gets the explanation of another tenant's request.
#include "server/operate/explanation.h"

#include <boost/json.hpp>
#include <string>

#include "server/running_server.h"

namespace quire {
namespace {

using ExplanationTest = RunningServer;

RequestExplanation example(std::string tenant = {}) {
  RequestExplanation facts;
  facts.id = RequestId{7};
  facts.tenant = std::move(tenant);
  facts.admitted_s = 2.0;
  facts.waits = {{EventCause::no_slot, 1.5, 3}, {EventCause::none, 0.5, 0}};
  facts.blocked_by_name = "chatcmpl-front";
  facts.num_tokens = 40;
  facts.num_cached = 16;
  facts.num_missed = 24;
  facts.missed[static_cast<std::size_t>(MissCause::evicted)] = 16;
  facts.missed[static_cast<std::size_t>(MissCause::diverged)] = 8;
  facts.misses = {{.cause = MissCause::evicted, .first_token = 16, .num_tokens = 16, .step = StepId{9}, .by_name = "chatcmpl-taker"},
                  {.cause = MissCause::diverged,
                   .first_token = 32,
                   .num_tokens = 8,
                   .differs_at = 33,
                   .before = {'a', 'b'},
                   .own = {'c'},
                   .stored = {'d'}}};
  facts.num_preemptions = 1;
  facts.preemptions = {{.step = StepId{11}, .cause = EventCause::lack_of_blocks, .num_missing_blocks = 2, .num_lost_tokens = 40}};
  return facts;
}

TEST_F(ExplanationTest, ExplainsCausesByTheIdOfTheAnswer) {
  engine.explanations = {example()};
  start();
  const ClientResponse answer = HttpClient(port).get("/v1/requests/chatcmpl-abc/explain");
  ASSERT_EQ(answer.status, 200U) << answer.body;
  EXPECT_EQ(engine.asked_name, "chatcmpl-abc");
  const boost::json::object reply = boost::json::parse(answer.body).as_object();
  EXPECT_EQ(reply.at("id").as_string(), "chatcmpl-abc");
  const boost::json::object& facts = reply.at("requests").as_array().at(0).as_object();
  EXPECT_EQ(facts.at("state").as_string(), "admitted");
  EXPECT_EQ(facts.at("waited_s").to_number<double>(), 2.0);
  EXPECT_EQ(facts.at("waits").as_array().at(0).at("cause").as_string(), "no_slot");
  EXPECT_EQ(facts.at("blocked_by").as_string(), "chatcmpl-front");
  EXPECT_EQ(facts.at("prompt").at("missed_by_cause").at("evicted").to_number<int>(), 16);
  EXPECT_EQ(facts.at("misses").as_array().at(0).at("by").as_string(), "chatcmpl-taker");
  EXPECT_EQ(facts.at("misses").as_array().at(1).at("differs_at").to_number<int>(), 33);
  EXPECT_TRUE(facts.at("misses").as_array().at(1).as_object().contains("stored"));
  EXPECT_TRUE(facts.at("preemptions").as_array().at(0).at("by").is_null()) << "the other request belongs to another tenant or is unknown";
}

TEST_F(ExplanationTest, UnknownIdIsNotFound) {
  start();
  EXPECT_EQ(HttpClient(port).get("/v1/requests/chatcmpl-abc/explain").status, 404U);
}

TEST_F(ExplanationTest, AnotherTenantsRequestLooksUnknown) {
  engine.explanations = {example("them")};
  ServerOptions options;
  options.tenant_keys = {{"us", "our-key"}, {"them", "their-key"}};
  start(options);
  const auto ask = [this](const std::string& key) {
    return HttpClient(port).get("/v1/requests/chatcmpl-abc/explain", "Authorization: Bearer " + key + "\r\n");
  };
  EXPECT_EQ(ask("our-key").status, 404U);
  const ClientResponse reply = ask("their-key");
  ASSERT_EQ(reply.status, 200U) << reply.body;
  EXPECT_EQ(reply.body.find("\"stored\":"), std::string::npos) << "stored tokens may be another tenant's text";
  EXPECT_EQ(HttpClient(port).get("/v1/requests/chatcmpl-abc/explain").status, 401U);
}

TEST_F(ExplanationTest, PassesTheIdOfEachAnswerToTheEngine) {
  engine.answer_with("hi");
  start();
  const ClientResponse answer = post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"max_tokens":4})");
  ASSERT_EQ(answer.status, 200U) << answer.body;
  EXPECT_EQ(engine.at(0).request.name, boost::json::parse(answer.body).at("id").as_string());
}

}  // namespace
}  // namespace quire
