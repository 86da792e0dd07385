// Tests the bodies of requests: their fields, the number of words, and which prompts share a beginning.
#include "traffic/prompts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>

namespace quire {
namespace {

namespace json = boost::json;

json::object object_of(const std::string& body) {
  return json::parse(body).as_object();
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text)
    if (c == ' ')
      words.emplace_back();
    else
      words.back() += c;
  return words;
}

std::vector<std::string> prompt_of(const PromptWriter& writer, std::uint32_t request) {
  return words_of(std::string(object_of(writer.body(request)).at("prompt").as_string()));
}

std::size_t common_words(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

TEST(PromptWriter, WritesACompletion) {
  const auto made = random_workload({.input = 10, .output = 5}, 2, 1).value();
  const PromptWriter writer(made, {.model = "m\"", .ignore_eos = true, .temperature = 0.5, .extra = {{"top_k", 3}, {"max_tokens", 4}}}, {},
                            1);
  const json::object body = object_of(writer.body(0));
  EXPECT_EQ(body.at("model").as_string(), "m\"");
  EXPECT_EQ(body.at("stream"), json::value(true));
  EXPECT_EQ(body.at("stream_options"), json::parse(R"({"include_usage": true})"));
  EXPECT_EQ(body.at("ignore_eos"), json::value(true));
  EXPECT_EQ(body.at("temperature"), json::value(0.5));
  EXPECT_EQ(body.at("top_k"), json::value(3));
  EXPECT_EQ(body.at("max_tokens"), json::value(4)) << "an extra field replaces another one";
  EXPECT_EQ(prompt_of(writer, 0).size(), 10U);
}

TEST(PromptWriter, WritesAChat) {
  const auto made = random_workload({.input = 10, .output = 5}, 2, 1).value();
  const json::object body = object_of(PromptWriter(made, {.model = "m", .is_chat = true}, {}, 1).body(1));
  EXPECT_EQ(body.at("max_tokens"), json::value(5));
  EXPECT_FALSE(body.contains("prompt"));
  EXPECT_FALSE(body.contains("ignore_eos"));
  EXPECT_FALSE(body.contains("temperature"));
  const json::object& message = body.at("messages").as_array().at(0).as_object();
  EXPECT_EQ(message.at("role").as_string(), "user");
  EXPECT_EQ(words_of(std::string(message.at("content").as_string())).size(), 10U);
}

TEST(PromptWriter, AdaptsTheNumberOfWordsToTheTokenizer) {
  const auto made = random_workload({.input = 100, .output = 5}, 1, 1).value();
  EXPECT_EQ(prompt_of(PromptWriter(made, {}, {.fixed_tokens = 1.0, .tokens_per_word = 1.0}, 1), 0).size(), 99U);
  EXPECT_EQ(prompt_of(PromptWriter(made, {}, {.fixed_tokens = 4.0, .tokens_per_word = 1.5}, 1), 0).size(), 64U);
  EXPECT_EQ(prompt_of(PromptWriter(made, {}, {.fixed_tokens = 500.0, .tokens_per_word = 1.0}, 1), 0).size(), 1U);
}

TEST(PromptWriter, RandomPromptsDifferFromTheirFirstWords) {
  const auto made = random_workload({.input = 40, .output = 5}, 20, 1).value();
  const PromptWriter writer(made, {}, {}, 1), other_seed(made, {}, {}, 2);
  for (std::uint32_t i = 1; i < 20; ++i) EXPECT_LT(common_words(prompt_of(writer, 0), prompt_of(writer, i)), 4U);
  EXPECT_EQ(prompt_of(writer, 3), prompt_of(writer, 3));
  EXPECT_LT(common_words(prompt_of(writer, 3), prompt_of(other_seed, 3)), 4U);
  const json::object warmup = object_of(writer.warmup_body(3));
  EXPECT_EQ(warmup.at("max_tokens"), json::value(5));
  const auto words = words_of(std::string(warmup.at("prompt").as_string()));
  EXPECT_EQ(words.size(), 40U);
  EXPECT_LT(common_words(words, prompt_of(writer, 3)), 4U);
}

TEST(PromptWriter, PromptsShareExactlyTheirPrefix) {
  const auto made = prefix_workload({.num_prefixes = 2, .prefix = 30, .suffix = 20, .output = 1}, 8, 1).value();
  const PromptWriter writer(made, {}, {}, 1);
  const auto prefix_id = [&](std::uint32_t i) { return made.workload.runs[made.workload.requests[i].first_run].first; };
  for (std::uint32_t i = 0; i < 8; ++i)
    for (std::uint32_t k = 0; k < i; ++k) {
      const std::size_t common = common_words(prompt_of(writer, i), prompt_of(writer, k));
      if (prefix_id(i) == prefix_id(k))
        EXPECT_TRUE(common >= 30 && common < 34) << common;
      else
        EXPECT_LT(common, 4U);
    }
}

// A trace with ids of four tokens. Requests 0 and 1 share two ids in the same name space; request 2 has the same ids in another one.
TrafficWorkload trace_with_ids() {
  TrafficWorkload made;
  made.workload.id_tokens = 4;
  made.workload.runs = {{10, 3}, {10, 2}, {50, 1}, {10, 3}};
  made.workload.requests = {{.prompt_tokens = 14, .output_tokens = 1, .first_run = 0, .num_runs = 1, .name_space = 1},
                            {.prompt_tokens = 14, .output_tokens = 1, .first_run = 1, .num_runs = 2, .name_space = 1},
                            {.prompt_tokens = 14, .output_tokens = 1, .first_run = 3, .num_runs = 1, .name_space = 2, .shared_ids = 11}};
  return made;
}

TEST(PromptWriter, PromptsOfATraceShareWhatTheirIdsShare) {
  TrafficWorkload made = trace_with_ids();
  made.workload.requests[0].shared_ids = made.workload.requests[1].shared_ids = 11;
  const PromptWriter writer(made, {}, {}, 1);
  EXPECT_EQ(prompt_of(writer, 0).size(), 14U);
  const std::size_t same_space = common_words(prompt_of(writer, 0), prompt_of(writer, 1));
  EXPECT_TRUE(same_space >= 8 && same_space < 12) << same_space;
  const std::size_t other_space = common_words(prompt_of(writer, 0), prompt_of(writer, 2));
  EXPECT_TRUE(other_space >= 4 && other_space < 8) << other_space << ": only id 10 is shared by all name spaces";
}

TEST(PromptWriter, SendsTheTokensOfATraceToCompletionsOnly) {
  TrafficWorkload made;
  made.workload.tokens = {7, 8, 9, 7, 8, 4};
  made.workload.requests = {{.prompt_tokens = 3, .output_tokens = 1, .first_token = 0, .has_tokens = true},
                            {.prompt_tokens = 3, .output_tokens = 1, .first_token = 3, .has_tokens = true}};
  const PromptWriter writer(made, {}, {}, 1), chat(made, {.is_chat = true}, {}, 1);
  EXPECT_EQ(object_of(writer.body(1)).at("prompt"), json::parse("[7, 8, 4]"));
  const auto content = [&](std::uint32_t i) {
    return words_of(std::string(object_of(chat.body(i)).at("messages").as_array().at(0).as_object().at("content").as_string()));
  };
  EXPECT_EQ(content(0).size(), 3U);
  EXPECT_GE(common_words(content(0), content(1)), 2U);
}

TEST(PromptWriter, SendsTheTextsOfAFile) {
  TrafficWorkload made;
  made.texts = {"What is \"this\"?"};
  made.workload.requests = {{.prompt_tokens = 4, .output_tokens = 9}};
  const json::object body = object_of(PromptWriter(made, {}, {}, 1).body(0));
  EXPECT_EQ(body.at("prompt").as_string(), "What is \"this\"?");
  EXPECT_EQ(body.at("max_tokens"), json::value(9));
}

}  // namespace
}  // namespace quire
