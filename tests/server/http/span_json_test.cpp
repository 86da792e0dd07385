// Tests the JSON text of spans.
#include "server/http/span_json.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <chrono>
#include <string>
#include <vector>

namespace quire {
namespace {

namespace json = boost::json;

TEST(SpanText, HasTheAttributesOfItsRequest) {
  RequestSpan span{.request_id = "i",
                   .answer_id = "a",
                   .method = "POST",
                   .path = "/x",
                   .status = 499,
                   .parent = {},
                   .begin = std::chrono::system_clock::time_point(std::chrono::seconds(5)),
                   .duration = std::chrono::seconds(4),
                   .tokens = {.prompt = 1, .cached = 2, .output = 3},
                   .progress = {}};
  const auto attributes_of = [](const json::value& text) {
    json::object found;
    for (const json::value& one : text.at("attributes").as_array())
      found[one.at("key").as_string()] = one.at("value").as_object().begin()->value();
    return found;
  };
  json::value text = json::parse(span_json(span, {.trace_id = "t", .span_id = "s"}, "m"));
  EXPECT_EQ(text.at("traceId"), "t");
  EXPECT_EQ(text.at("spanId"), "s");
  EXPECT_EQ(text.at("parentSpanId"), "");
  EXPECT_EQ(text.at("name"), "llm_request");
  EXPECT_EQ(text.at("kind"), 2);
  EXPECT_EQ(text.at("startTimeUnixNano"), "5000000000");
  EXPECT_EQ(text.at("endTimeUnixNano"), "9000000000");
  EXPECT_EQ(text.at("status").at("code"), 0);
  EXPECT_EQ(attributes_of(text), json::parse(R"({"gen_ai.request.id":"i","gen_ai.response.id":"a","gen_ai.response.model":"m",
      "gen_ai.usage.prompt_tokens":"1","gen_ai.usage.completion_tokens":"3","gen_ai.usage.cache_read.input_tokens":"2",
      "gen_ai.latency.e2e":4,"http.request.method":"POST","url.path":"/x","http.response.status_code":"499"})"));
  span.status = 500;
  span.parent = TraceContext{.trace_id = "T", .parent_id = "P", .is_sampled = true};
  span.progress = AnswerSource::Progress{.queued = std::chrono::seconds(1), .temperature = 0.5F, .top_p = 0.25F, .max_tokens = 8, .n = 2};
  span.progress->to_first_token = std::chrono::seconds(3);
  text = json::parse(span_json(span, {.trace_id = "t", .span_id = "s"}, "m"));
  EXPECT_EQ(text.at("traceId"), "T");
  EXPECT_EQ(text.at("parentSpanId"), "P");
  EXPECT_EQ(text.at("status").at("code"), 2);
  const json::object found = attributes_of(text);
  const json::object wanted = json::parse(R"({"gen_ai.latency.time_in_queue":1,"gen_ai.latency.time_to_first_token":3,
      "gen_ai.latency.time_in_model_prefill":2,"gen_ai.latency.time_in_model_decode":1,"gen_ai.latency.time_in_model_inference":3,
      "gen_ai.request.temperature":0.5,"gen_ai.request.top_p":0.25,"gen_ai.request.max_tokens":"8","gen_ai.request.n":"2"})")
                                  .as_object();
  for (const auto& [name, value] : wanted) EXPECT_EQ(found.at(name), value) << name;
  span.progress->to_first_token.reset();
  const json::object waiting = attributes_of(json::parse(span_json(span, {.trace_id = "t", .span_id = "s"}, "m")));
  EXPECT_FALSE(waiting.contains("gen_ai.latency.time_to_first_token"));
  EXPECT_EQ(waiting.at("gen_ai.latency.time_in_model_inference"), 3);
  const std::vector<std::string> spans = {R"({"a":1})", R"({"b":2})"};
  const json::value body = json::parse(spans_body(spans, "svc"));
  const json::value& resource = body.at("resourceSpans").as_array().at(0);
  EXPECT_EQ(attributes_of(resource.at("resource")), json::parse(R"({"service.name":"svc"})"));
  EXPECT_EQ(resource.at("scopeSpans").as_array().at(0).at("scope").at("name"), "quire");
  EXPECT_EQ(resource.at("scopeSpans").as_array().at(0).at("spans"), json::parse(R"([{"a":1},{"b":2}])"));
}

}  // namespace
}  // namespace quire
