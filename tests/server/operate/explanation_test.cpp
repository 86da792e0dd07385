// Tests the explanation of a request, and that no client gets the explanation of another tenant's request.
#include "server/operate/explanation.h"

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "quire/text/tokenizer.h"
#include "server/running_server.h"

namespace quire {
namespace {

namespace json = boost::json;

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

RequestExplanation full_explanation() {
  RequestExplanation facts;
  facts.admitted_s = 2.0;
  facts.ended_s = 3.0;
  facts.waits = {{EventCause::no_slot, 1.5, 3}, {EventCause::none, 0.5, 0}};
  facts.later_waits = {{EventCause::input, 0.25, 1}};
  facts.blocked_by_name = "front";
  facts.num_tokens = 40;
  facts.num_cached = 10;
  facts.num_external = 4;
  facts.num_shared = 2;
  facts.num_missed = 24;
  facts.missed[static_cast<std::size_t>(MissCause::evicted)] = 16;
  facts.missed[static_cast<std::size_t>(MissCause::diverged)] = 8;
  facts.misses = {{.cause = MissCause::evicted, .first_token = 16, .num_tokens = 16, .step = StepId{9}, .by_name = "taker"},
                  {.cause = MissCause::forgotten, .first_token = 1, .num_tokens = 2, .step = StepId{7}, .by_name = "taker"},
                  {.cause = MissCause::reset, .first_token = 3, .num_tokens = 4, .step = StepId{8}},
                  {.cause = MissCause::diverged,
                   .first_token = 32,
                   .num_tokens = 8,
                   .step = StepId{5},
                   .differs_at = 33,
                   .before = {'a', 'b'},
                   .own = {'c'},
                   .stored = {'d'}}};
  facts.num_preemptions = 2;
  facts.preemptions = {{.step = StepId{11},
                        .cause = EventCause::lack_of_blocks,
                        .by_name = "other",
                        .num_missing_blocks = 2,
                        .swapped_out = true,
                        .num_lost_tokens = 40}};
  facts.remembered_since = StepId{1};
  return facts;
}

json::value explained_request(const RequestExplanation& facts, bool includes_other_prompts = true) {
  const auto tokenizer = Tokenizer::create(*byte_model().tokenizer).value();
  const json::value whole = json::parse(explanation_json("id", std::vector{facts}, *tokenizer, includes_other_prompts));
  EXPECT_EQ(whole.at("object"), "request.explanation");
  EXPECT_EQ(whole.at("id"), "id");
  EXPECT_EQ(whole.at("requests").as_array().size(), 1U);
  return whole.at("requests").as_array().at(0);
}

TEST(Explanations, HaveAllFacts) {
  json::value wanted = json::parse(R"~({"state":"ended","waited_s":2.0,"waits":[
      {"cause":"no_slot","text":"all batch slots were in use (--max-num-seqs)","seconds":1.5,"steps":3},
      {"cause":"next_step","text":"it arrived while a step was running","seconds":0.5,"steps":0}],"waited_again_s":0.25,"waits_again":[
      {"cause":"input","text":"it is a session and was waiting for its next input","seconds":0.25,"steps":1}],"blocked_by":"front",
      "behind":"front","prompt":{"tokens":40,"cached":10,"from_tiers":4,"shared":2,"missed":24,
      "missed_by_cause":{"diverged":8,"evicted":16},"remembered_since_step":1},"misses":[
      {"cause":"evicted","text":"their blocks were evicted for other requests","first_token":16,"tokens":16,"step":9,"by":"taker"},
      {"cause":"forgotten","text":"their blocks were removed because the content was in doubt","first_token":1,"tokens":2,"step":7},
      {"cause":"reset","text":"the prefix cache was reset after they were stored","first_token":3,"tokens":4,"step":8},
      {"cause":"diverged","text":"the prompt diverges from the cached prefix","first_token":32,"tokens":8,"differs_at":33,
       "before":"ab","own":"c","stored":"d"}],"num_preemptions":2,"preemptions":[
      {"cause":"lack_of_blocks","text":"the KV cache had too few free blocks (--kv-cache-memory)","step":11,"by":"other",
       "missing_blocks":2,"swapped_out":true,"lost_tokens":40}]})~");
  wanted.as_object().emplace("summary",
                             "waited 2.000 s, most of it because all batch slots were in use (--max-num-seqs); 16 of 40 prompt tokens did "
                             "not need to be computed, 16 were missed because their blocks were evicted for other requests; preempted 2 "
                             "times");
  EXPECT_EQ(explained_request(full_explanation()), wanted) << json::serialize(explained_request(full_explanation()));
  wanted.at("misses").as_array()[3].as_object().erase("stored");
  EXPECT_EQ(explained_request(full_explanation(), false), wanted) << "stored tokens may be another tenant's text";
}

TEST(Explanations, LeaveOutWhatIsNotKnown) {
  RequestExplanation facts;
  EXPECT_EQ(explained_request(facts),
            json::parse(R"({"state":"waiting","summary":"waited 0.000 s","waited_s":0.0,"waits":[],"waited_again_s":0.0,
      "waits_again":[],"blocked_by":null,"behind":null,"prompt":{"tokens":0,"cached":0,"from_tiers":0,"shared":0,"missed":0,
      "missed_by_cause":{}},"misses":[],"num_preemptions":0,"preemptions":[]})"));
  facts.admitted_s = 1.0;
  facts.waits = {{EventCause::no_slot, 0.0, 1}};
  facts.num_tokens = 3;
  facts.num_preemptions = 1;
  EXPECT_EQ(explained_request(facts).at("state"), "admitted");
  EXPECT_EQ(explained_request(facts).at("summary"), "waited 0.000 s; 3 of 3 prompt tokens did not need to be computed; preempted 1 time")
      << "a wait of no time has no cause";
  facts.num_missed = 1;
  facts.missed[0] = 1;
  facts.preemptions.emplace_back();
  EXPECT_EQ(
      explained_request(facts).at("summary"),
      "waited 0.000 s; 2 of 3 prompt tokens did not need to be computed, 1 were missed because they were not computed before, or this "
      "is no longer remembered; preempted 1 time");
  EXPECT_TRUE(explained_request(facts).at("preemptions").as_array()[0].at("by").is_null());
}

TEST(Explanations, ShowSpecialTokensWhereAPromptDiverges) {
  RequestExplanation facts;
  facts.misses = {{.cause = MissCause::diverged, .differs_at = 1, .before = {'a', kFakeEos}, .own = {kFakeEos, 'b'}, .stored = {kFakeEos}}};
  const json::value miss = explained_request(facts).at("misses").at(0);
  EXPECT_EQ(miss.at("before"), "a<|end|>");
  EXPECT_EQ(miss.at("own"), "<|end|>b");
  EXPECT_EQ(miss.at("stored"), "<|end|>");
}

TEST(Explanations, RoundTimesToMicroseconds) {
  RequestExplanation facts;
  facts.waits = {{EventCause::no_slot, 0.1234561, 3}, {EventCause::none, 0.0000013, 0}};
  const json::value explained = explained_request(facts);
  EXPECT_EQ(explained.at("waited_s"), 0.123457);
  EXPECT_EQ(explained.at("waits").at(0).at("seconds"), 0.123456);
  EXPECT_EQ(explained.at("waits").at(1).at("seconds"), 0.000001);
}

TEST(Explanations, NameEveryCause) {
  const char* const events[] = {"next_step",     "lack_of_blocks", "expired", "replaced",        "job_over", "reset",     "pressure",
                                "pressure_over", "no_place",       "no_gain", "failed_transfer", "paused",   "no_tokens", "no_slot",
                                "preempting",    "grammar",        "loading", "connector",       "adapter",  "input"};
  for (std::size_t i = 0; i < kNumEventCauses; ++i) EXPECT_EQ(name_of(static_cast<EventCause>(i)), events[i]);
  const char* const misses[] = {"never_stored", "diverged",    "evicted",       "forgotten",   "reset",        "behind_a_miss",
                                "last_token",   "other_group", "partial_block", "load_failed", "not_looked_up"};
  for (std::size_t i = 0; i < kNumMissCauses; ++i) EXPECT_EQ(name_of(static_cast<MissCause>(i)), misses[i]);
}

using ExplainRoute = RunningServer;

TEST_F(ExplainRoute, SaysWhyARequestIsNotExplained) {
  start();
  const ClientResponse answer = HttpClient(port).get("/v1/requests/x/explain");
  EXPECT_EQ(answer.status, 404U);
  EXPECT_EQ(answer.error_message(),
            "id: the request is unknown, or ended too long ago; ask sooner, or start the server with a larger --explained-requests");
}

}  // namespace
}  // namespace quire
