#include "server/request/completion_request.h"

#include <gtest/gtest.h>

#include <string>

#include "server/request/object_reader.h"

namespace quire {
namespace {

constexpr RequestLimits kLimits{.max_choices = 8, .vocab_size = 100};

Result<CompletionRequest> completion(const std::string& fields) {
  return parse_completion_request(Api::completion, R"({"prompt": "hi")" + (fields.empty() ? "" : ", " + fields) + "}", kLimits);
}
Result<CompletionRequest> chat(const std::string& fields, const std::string& messages = R"([{"role": "user", "content": "hi"}])") {
  return parse_completion_request(Api::chat, R"({"messages": )" + messages + (fields.empty() ? "" : ", " + fields) + "}", kLimits);
}
std::string wrong_field(const Result<CompletionRequest>& result) {
  return result.has_value() ? "(accepted)" : result.error().field;
}

TEST(CompletionRequest, DefaultsAreThoseOfOpenAi) {
  const auto request = completion("");
  ASSERT_TRUE(request.has_value()) << request.error().to_string();
  EXPECT_EQ(request->max_tokens, 16U);
  EXPECT_EQ(request->sampling.temperature, 1.0F);
  EXPECT_EQ(request->sampling.top_p, 1.0F);
  EXPECT_EQ(request->n, 1U);
  EXPECT_FALSE(request->stream);
  EXPECT_TRUE(request->add_special_tokens);
  EXPECT_FALSE(request->sampling.logprobs.has_value());
  const auto conversation = chat("");
  ASSERT_TRUE(conversation.has_value()) << conversation.error().to_string();
  EXPECT_FALSE(conversation->max_tokens.has_value());
  EXPECT_FALSE(conversation->add_special_tokens);
  EXPECT_TRUE(conversation->chat.add_generation_prompt);
}

TEST(CompletionRequest, ReadsAgentTagsFromTheBodyOrVllmXargs) {
  for (const char* fields :
       {R"("job_id": "j", "is_last_step": true, "tool": "ls")", R"("vllm_xargs": {"job_id": "j", "is_last_step": true, "tool": "ls"})",
        R"("vllm_xargs": {"job_id": "other", "is_last_step": true}, "job_id": "j", "tool": "ls")"}) {
    const auto request = chat(fields);
    ASSERT_TRUE(request.has_value()) << request.error().to_string();
    EXPECT_EQ(request->tags, (RequestTags{.job = "j", .is_last_step = true, .tool = "ls"}));
  }
  EXPECT_EQ(completion("")->tags, RequestTags());
  EXPECT_EQ(chat(R"("service_tier": "flex")")->tags, RequestTags{.is_background = true});
  for (const char* tier : {R"("auto")", R"("default")", R"("priority")", R"("Flex")", "null", "7"})
    EXPECT_EQ(chat(R"("service_tier": )" + std::string(tier))->tags, RequestTags()) << tier;
  const std::pair<const char*, std::uint32_t> times[] = {
      {R"("prompt_cache_retention": "24h")", 86400},
      {R"("prompt_cache_retention": "in_memory")", 0},
      {R"("prompt_cache_retention": "in-memory")", 0},
      {R"("prompt_cache_retention": "90s")", 90},
      {R"("prompt_cache_retention": "30d")", 2592000},
      {R"("prompt_cache_retention": null)", 0},
      {R"("cache_control": {"type": "ephemeral"})", 300},
      {R"("cache_control": {"type": "ephemeral", "ttl": "1h"}, "prompt_cache_retention": "5m")", 3600},
      {R"("cache_control": null)", 0},
  };
  for (const auto& [field, seconds] : times) EXPECT_EQ(chat(field)->tags, RequestTags{.retention_s = seconds}) << field;
  for (const char* wrong : {R"("31d")", R"("h")", R"("1")", R"("-1h")", R"("1y")", R"("1 h")", R"("99999999999999999999s")", "7"})
    EXPECT_EQ(wrong_field(chat(R"("prompt_cache_retention": )" + std::string(wrong))), "prompt_cache_retention") << wrong;
  EXPECT_EQ(wrong_field(chat(R"("cache_control": true)")), "cache_control");
  EXPECT_EQ(wrong_field(chat(R"("cache_control": {"ttl": 7})")), "cache_control.ttl");
  EXPECT_EQ(wrong_field(chat(R"("cache_control": {"ttl": "long"})")), "cache_control.ttl");
  EXPECT_EQ(wrong_field(completion(R"("job_id": 7)")), "job_id");
  EXPECT_EQ(wrong_field(completion(R"("is_last_step": true)")), "is_last_step") << "is_last_step requires a job_id";
  EXPECT_EQ(wrong_field(completion(R"("vllm_xargs": [])")), "vllm_xargs");
  EXPECT_EQ(wrong_field(completion(R"("vllm_xargs": {"jobid": "j"})")), "vllm_xargs.jobid");
}

TEST(CompletionRequest, RetainsForTheLongestTimeOfTheParts) {
  const auto message = [](const std::string& fields, const std::string& part) {
    return R"([{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "hi")" + part + "}]" + fields +
           "}]";
  };
  const std::string control = R"(, "cache_control": {"type": "ephemeral", "ttl": "1h"})";
  const std::string tools = R"("tools": [{"type": "function", "function": {"name": "f"})" + control + "}]";
  EXPECT_EQ(chat("", message("", control))->tags.retention_s, 3600U);
  EXPECT_EQ(chat("", message(control, ""))->tags.retention_s, 3600U);
  EXPECT_EQ(chat(tools)->tags.retention_s, 3600U);
  EXPECT_EQ(chat(R"("prompt_cache_retention": "5m")", message("", control))->tags.retention_s, 3600U);
  EXPECT_EQ(chat(R"("prompt_cache_retention": "2h")", message("", control))->tags.retention_s, 7200U);
  EXPECT_EQ(chat("", message("", R"(, "cache_control": null)"))->tags.retention_s, 0U);
  EXPECT_EQ(wrong_field(chat("", message("", R"(, "cache_control": {"ttl": "1y"})"))), "messages[1].content[0].cache_control.ttl");
  EXPECT_EQ(wrong_field(chat("", message(R"(, "cache_control": 7)", ""))), "messages[1].cache_control");
}

// An answer that repeats such a number as Infinity is not valid JSON.
TEST(CompletionRequest, RefusesNumbersBeyondFloatsAndNamesTheField) {
  for (const char* body : {R"({"tools":[{"function":{"parameters":{"properties":{"a":{"maximum":1e999}}}}}]})", R"({"a":1,"tools":-2e308})",
                           R"({"tools":{"a":[0.1e9995]}})"}) {
    const auto object = parse_object(body);
    ASSERT_FALSE(object) << body;
    EXPECT_EQ(object.error().field, "tools") << body;
  }
  EXPECT_TRUE(parse_object(R"({"a":1.7e308,"b":[1e-999,123456789012345678901234567890]})"));
}

TEST(CompletionRequest, HintsAreNamedStrings) {
  const std::vector<std::pair<std::string, std::string>> hints = {{"b", "1"}, {"a", ""}};
  for (const char* fields : {R"("hints": {"b": "1", "a": ""})", R"("vllm_xargs": {"hints": {"b": "1", "a": ""}})",
                             R"("vllm_xargs": {"hints": {"c": "2"}}, "hints": {"b": "1", "a": ""})"}) {
    const auto request = chat(fields);
    ASSERT_TRUE(request.has_value()) << request.error().to_string();
    EXPECT_EQ(request->tags.hints, hints);
  }
  EXPECT_TRUE(completion(R"("hints": null)")->tags.hints.empty());
  for (const char* wrong : {R"("hints": "b")", R"("hints": ["b"])", R"("hints": {"b": 1})", R"("hints": {"b": {"c": "d"}})"})
    EXPECT_EQ(wrong_field(completion(wrong)), "hints") << wrong;
}

TEST(CompletionRequest, ReadsEverySamplingField) {
  const auto request = completion(
      R"("temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "repetition_penalty": 1.1, "presence_penalty": 0.2,
         "frequency_penalty": -0.3, "seed": 42, "logprobs": 3, "logit_bias": {"5": 1.5, "7": -100}, "max_tokens": 20, "min_tokens": 2,
         "stop_token_ids": [1, 2], "ignore_eos": true, "stop": ["a", "b"], "include_stop_str_in_output": true,
         "skip_special_tokens": false, "cache_salt": "s", "priority": -3, "n": 2, "echo": false,
         "repetition_detection": {"max_pattern_size": 20, "min_pattern_size": 3, "min_count": 4})");
  ASSERT_TRUE(request.has_value()) << request.error().to_string();
  const SamplingParams& sampling = request->sampling;
  EXPECT_EQ(sampling.temperature, 0.5F);
  EXPECT_EQ(sampling.top_p, 0.9F);
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_EQ(sampling.min_p, 0.1F);
  EXPECT_EQ(sampling.repetition_penalty, 1.1F);
  EXPECT_EQ(sampling.presence_penalty, 0.2F);
  EXPECT_EQ(sampling.frequency_penalty, -0.3F);
  EXPECT_EQ(sampling.seed, 42U);
  EXPECT_EQ(sampling.logprobs, 3U);
  EXPECT_EQ(sampling.logit_bias, (std::vector<std::pair<TokenId, float>>{{5, 1.5F}, {7, -100.0F}}));
  EXPECT_EQ(sampling.max_tokens, 20U);
  EXPECT_EQ(sampling.min_tokens, 2U);
  EXPECT_EQ(sampling.stop_token_ids, (std::vector<TokenId>{1, 2}));
  EXPECT_TRUE(sampling.ignore_eos);
  EXPECT_EQ(sampling.repetition, (RepetitionDetection{.min_pattern_tokens = 3, .max_pattern_tokens = 20, .min_count = 4}));
  EXPECT_EQ(request->stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(request->include_stop);
  EXPECT_FALSE(request->skip_special_tokens);
  EXPECT_EQ(request->cache_salt, "s");
  EXPECT_EQ(request->priority, -3);
  EXPECT_EQ(request->n, 2U);
}

TEST(CompletionRequest, NamesInvalidRepetitionDetection) {
  EXPECT_EQ(wrong_field(completion(R"("repetition_detection": 3)")), "repetition_detection");
  EXPECT_EQ(wrong_field(completion(R"("repetition_detection": {"max_pattern_size": -1})")), "repetition_detection.max_pattern_size");
  EXPECT_EQ(wrong_field(completion(R"("repetition_detection": {"patterns": 1})")), "repetition_detection.patterns");
}

TEST(CompletionRequest, BestOfDefaultsToN) {
  EXPECT_EQ(completion(R"("n": 2)")->best_of, 2U);
  EXPECT_EQ(completion(R"("n": 2, "best_of": 4)")->best_of, 4U);
  EXPECT_EQ(completion(R"("n": 2, "best_of": 4)")->n, 2U);
  EXPECT_EQ(wrong_field(chat(R"("best_of": 3)")), "best_of") << "like OpenAI, only text completions support best_of";
}

TEST(CompletionRequest, NullCountsAsAbsent) {
  const auto request = chat(
      R"("temperature": null, "stop": null, "seed": null, "tools": null, "response_format": null, "stream": null, "stream_options": null,
         "logit_bias": null, "max_tokens": null, "functions": null, "user": null)");
  ASSERT_TRUE(request.has_value()) << request.error().to_string();
  EXPECT_EQ(request->sampling.temperature, 1.0F);
}

TEST(CompletionRequest, AcceptsPromptsInFourFormats) {
  const auto prompts = [](const std::string& prompt) {
    return parse_completion_request(Api::completion, R"({"prompt": )" + prompt + "}", kLimits);
  };
  EXPECT_EQ(prompts(R"("a")")->prompts, (std::vector<Prompt>{"a"}));
  EXPECT_EQ(prompts(R"(["a", "b"])")->prompts, (std::vector<Prompt>{"a", "b"}));
  EXPECT_EQ(prompts("[1, 2]")->prompts, (std::vector<Prompt>{std::vector<TokenId>{1, 2}}));
  EXPECT_EQ(prompts("[[1], [2, 3]]")->prompts, (std::vector<Prompt>{std::vector<TokenId>{1}, std::vector<TokenId>{2, 3}}));
  for (const char* bad : {"1", "{}", "[]", "true", "[1, 100]", "[-1]", "[1.5]", "[1, \"a\"]", "[[1], [true]]", "[{}]",
                          R"(["1","2","3","4","5","6","7","8","9"])"}) {
    EXPECT_EQ(wrong_field(prompts(bad)), "prompt") << bad;
  }
}

TEST(CompletionRequest, WrongTypesAndRangesNameTheirField) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("temperature": "hot")", "temperature"},
      {R"("temperature": -1)", "temperature"},
      {R"("temperature": 2.1)", "temperature"},
      {R"("top_p": 0)", "top_p"},
      {R"("top_k": -2)", "top_k"},
      {R"("top_k": 1.5)", "top_k"},
      {R"("min_p": 1.1)", "min_p"},
      {R"("presence_penalty": 3)", "presence_penalty"},
      {R"("repetition_penalty": 0)", "repetition_penalty"},
      {R"("seed": "x")", "seed"},
      {R"("max_tokens": -1)", "max_tokens"},
      {R"("max_tokens": 99999999999)", "max_tokens"},
      {R"("min_tokens": 17)", "min_tokens"},
      {R"("n": 0)", "n"},
      {R"("n": 9)", "n"},
      {R"("n": 2, "temperature": 0)", "n"},
      {R"("logprobs": 21)", "logprobs"},
      {R"("logprobs": true)", "logprobs"},
      {R"("logit_bias": [1])", "logit_bias"},
      {R"("logit_bias": {"x": 1})", "logit_bias"},
      {R"("logit_bias": {"100": 1})", "logit_bias"},
      {R"("logit_bias": {"1": "a"})", "logit_bias"},
      {R"("logit_bias": {"1": 101})", "logit_bias"},
      {R"("stop": 5)", "stop"},
      {R"("stop": [""])", "stop"},
      {R"("stop": ["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])", "stop"},
      {R"("stop_token_ids": 5)", "stop_token_ids"},
      {R"("stop_token_ids": [100])", "stop_token_ids"},
      {R"("stream": "yes")", "stream"},
      {R"("stream_options": {"include_usage": true})", "stream_options"},
      {R"("stream": true, "stream_options": {"include_usage": 1})", "stream_options.include_usage"},
      {R"("stream": true, "stream_options": {"include_usages": true})", "stream_options.include_usages"},
      {R"("ignore_eos": 1)", "ignore_eos"},
      {R"("cache_salt": 1)", "cache_salt"},
      {R"("cache_salt": "")", "cache_salt"},
      {R"("priority": "high")", "priority"},
      {R"("priority": 1.5)", "priority"},
      {R"("priority": 9223372036854775808)", "priority"},
      {R"("echo": true, "logprobs": 1, "use_beam_search": true)", "echo"},
      {R"("prompt_logprobs": 21)", "prompt_logprobs"},
      {R"("prompt_logprobs": -1)", "prompt_logprobs"},
      {R"("prompt_logprobs": true)", "prompt_logprobs"},
      {R"("prompt_logprobs": 1.5)", "prompt_logprobs"},
      {R"("prompt_logprobs": "3")", "prompt_logprobs"},
      {R"("prompt_logprobs": 99999999999999999999)", "prompt_logprobs"},
      {R"("prompt_logprobs": 1, "stream": true)", "prompt_logprobs"},
      {R"("max_tokens": -1)", "max_tokens"},
      {R"("max_tokens": -1, "echo": true)", "max_tokens"},
      {R"("max_tokens": 0, "echo": true, "min_tokens": 2)", "min_tokens"},
      {R"("suffix": "end", "echo": true)", "suffix"},
      {R"("suffix": "end", "truncate_prompt_tokens": 3)", "suffix"},
      {R"("suffix": 3)", "suffix"},
      {R"("n": 3, "best_of": 2)", "best_of"},
      {R"("best_of": 3, "stream": true)", "best_of"},
      {R"("best_of": 100000)", "best_of"},
      {R"("best_of": 3, "temperature": 0)", "best_of"},
      {R"("model": 3)", "model"},
  };
  for (const auto& [fields, field] : cases) EXPECT_EQ(wrong_field(completion(fields)), field) << fields;
}

TEST(CompletionRequest, AcceptsUnsupportedFieldsOnlyWithNeutralValues) {
  EXPECT_TRUE(chat(R"("response_format": {"type": "text"}, "store": false, "best_of": 1, "length_penalty": 1.0, "user": "u",
                      "metadata": {"a": "b"}, "parallel_tool_calls": true, "service_tier": "auto", "tool_choice": "none")")
                  .has_value());
  for (const char* fields : {R"("typical_p": 0.5)", R"("truncation_side": "right")", R"("prompt_embeds": "x")", R"("early_stopping": true)",
                             R"("tool_choice": "required")", R"("functions": [{}])", R"("audio": {"voice": "alloy"})"}) {
    const auto request = chat(fields);
    ASSERT_FALSE(request.has_value()) << fields;
    EXPECT_EQ(request.error().code, ErrorCode::unsupported) << fields;
    EXPECT_FALSE(request.error().remedy.empty()) << fields;
  }
}

TEST(CompletionRequest, ReportsIgnoredAndUnknownFields) {
  const auto request = chat(R"("user": "u", "store": true, "xyzzy": {"a": 1}, "a,b\nc": 0, "plugh": null, "stream": true,
                               "stream_options": {"include_obfuscation": true, "frotz": 1}, "vllm_xargs": {"gnusto": 1})");
  ASSERT_TRUE(request.has_value()) << request.error().to_string();
  std::vector<std::string> ignored = request->ignored;
  std::ranges::sort(ignored);
  EXPECT_EQ(ignored, (std::vector<std::string>{"a?b?c", "store", "stream_options.frotz", "stream_options.include_obfuscation", "user",
                                               "vllm_xargs.gnusto", "xyzzy"}));
  EXPECT_TRUE(chat("")->ignored.empty());
  std::string many;
  for (int i = 0; i < 1000; ++i) many += (i == 0 ? "" : ",") + ("\"zzzzzzzzzzzzzzzzzzz" + std::to_string(i)) + "\": 1";
  EXPECT_EQ(chat(many)->ignored.size(), kMaxIgnored);
}

TEST(CompletionRequest, AnUnknownFieldNamesTheNearestKnownOne) {
  const auto request = completion(R"("max_token": 5)");
  ASSERT_FALSE(request.has_value());
  EXPECT_EQ(request.error().field, "max_token");
  EXPECT_NE(request.error().remedy.find("max_tokens"), std::string::npos);
}

TEST(CompletionRequest, ChatLogprobsNeedBothFields) {
  EXPECT_EQ(chat(R"("logprobs": true, "top_logprobs": 4)")->sampling.logprobs, 4U);
  EXPECT_EQ(chat(R"("logprobs": true)")->sampling.logprobs, 0U);
  EXPECT_FALSE(chat(R"("logprobs": false)")->sampling.logprobs.has_value());
  EXPECT_EQ(wrong_field(chat(R"("top_logprobs": 4)")), "top_logprobs");
}

TEST(CompletionRequest, PromptLogprobsAreRequestedByFieldOrEcho) {
  EXPECT_FALSE(completion("")->sampling.prompt_logprobs.has_value());
  EXPECT_EQ(completion(R"("prompt_logprobs": 0)")->sampling.prompt_logprobs, 0U);
  EXPECT_TRUE(completion(R"("prompt_logprobs": 3)")->prompt_logprobs);
  EXPECT_EQ(chat(R"("prompt_logprobs": 3)")->sampling.prompt_logprobs, 3U);
  EXPECT_FALSE(completion(R"("prompt_logprobs": 0, "stream": true)")->sampling.prompt_logprobs.has_value())
      << "vLLM also ignores it for streams";
  EXPECT_FALSE(completion(R"("echo": true)")->sampling.prompt_logprobs.has_value());
  EXPECT_FALSE(completion(R"("echo": true, "logprobs": 4)")->prompt_logprobs);
  EXPECT_EQ(completion(R"("echo": true, "logprobs": 4)")->sampling.prompt_logprobs, 4U);
  EXPECT_EQ(completion(R"("echo": true, "logprobs": 4, "stream": true)")->sampling.prompt_logprobs, 4U);
  EXPECT_EQ(completion(R"("echo": true, "logprobs": 4, "prompt_logprobs": 2)")->sampling.prompt_logprobs, 2U);
}

TEST(CompletionRequest, EchoMayBeRequestedAlone) {
  const auto request = completion(R"("echo": true, "max_tokens": 0)");
  ASSERT_TRUE(request.has_value());
  EXPECT_TRUE(request->echo_only);
  EXPECT_EQ(request->sampling.max_tokens, 1U) << "the engine samples at least one token";
  EXPECT_FALSE(completion(R"("echo": true, "max_tokens": 1)")->echo_only);
}

TEST(CompletionRequest, MaxCompletionTokensIsTheNewerNameOfMaxTokens) {
  EXPECT_EQ(chat(R"("max_completion_tokens": 7)")->max_tokens, 7U);
  EXPECT_EQ(chat(R"("max_completion_tokens": 7, "max_tokens": 7)")->max_tokens, 7U);
  EXPECT_EQ(wrong_field(chat(R"("max_completion_tokens": 7, "max_tokens": 8)")), "max_completion_tokens");
}

TEST(CompletionRequest, ConvertsMessagesForTemplates) {
  const auto request = chat(R"("tools": [{"type": "function", "function": {"name": "f"}}], "chat_template_kwargs": {"a": 1})", R"([
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": null},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
      {"role": "tool", "tool_call_id": "1", "content": "ok"}])");
  ASSERT_TRUE(request.has_value()) << request.error().to_string();
  const auto& messages = request->chat.messages;
  EXPECT_EQ(messages[0].at("content"), "a\nb");
  const auto refused =
      chat("", R"([{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "no"}]}])");
  ASSERT_TRUE(refused.has_value()) << refused.error().to_string();
  EXPECT_EQ(refused->chat.messages[0].at("content"), "a\nno");
  EXPECT_FALSE(messages[0].as_object().contains("name"));
  EXPECT_EQ(messages[1].at("content"), "");
  EXPECT_EQ(messages[1].at("tool_calls").as_array()[0].at("function").at("arguments").at("x"), 1);
  EXPECT_EQ(messages[2].at("tool_call_id"), "1");
  EXPECT_TRUE(request->chat.tools.is_array());
  EXPECT_EQ(request->chat.template_kwargs.at("a"), 1);
}

TEST(CompletionRequest, ErrorsNameThePathOfAMessage) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "messages"},
      {"\"hi\"", "messages"},
      {"[1]", "messages[0]"},
      {R"([{"content": "a"}])", "messages[0].role"},
      {R"([{"role": "user"}])", "messages[0].content"},
      {R"([{"role": "user", "content": 5}])", "messages[0].content"},
      {R"([{"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "image_url"}]}])", "messages[1].content[0]"},
      {R"([{"role": "user", "content": [{"type": "text"}]}])", "messages[0].content[0].text"},
      {R"([{"role": "assistant", "content": [{"type": "refusal", "text": "a"}]}])", "messages[0].content[0].refusal"},
      {R"([{"role": "assistant", "tool_calls": [{"function": {"arguments": "[1]"}}]}])", "messages[0].tool_calls"},
      {R"([{"role": "assistant", "tool_calls": 1}])", "messages[0].tool_calls"},
  };
  for (const auto& [messages, field] : cases) EXPECT_EQ(wrong_field(chat("", messages)), field) << messages;
}

TEST(CompletionRequest, RefusesBodiesThatAreNotJsonObjects) {
  const std::string deep(100, '[');
  for (const std::string& body : {std::string(), std::string("{"), std::string("[]"), std::string("null"), std::string("{} x"),
                                  std::string("{\"prompt\": \"\xFF\"}"), std::string(R"({"prompt": "\ud800"})"), R"({"prompt": )" + deep}) {
    const auto request = parse_completion_request(Api::completion, body, kLimits);
    ASSERT_FALSE(request.has_value()) << body;
    EXPECT_EQ(request.error().code, ErrorCode::invalid_argument);
    EXPECT_FALSE(request.error().message.empty());
  }
}

}  // namespace
}  // namespace quire
