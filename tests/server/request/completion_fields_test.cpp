// Tests the error of each invalid field of a completion: its field, its text and its remedy. Tests also the largest and the smallest value
// that each field accepts, and the members that the fields set.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "server/request/completion_request.h"
#include "server/request/object_reader.h"
#include "server/request/request_bodies.h"

namespace quire {
namespace {

TEST(CompletionErrors, NameTheFieldTheProblemAndTheFix) {
  const BodyCase cases[] = {
      {"", "prompt: is missing; send a string"},
      {R"("prompt": {})", "prompt: must be a string, a list of strings, token ids or a list of lists of token ids, not object"},
      {R"("prompt": [])", "prompt: must be a string, a list of strings, token ids or a list of lists of token ids, not array"},
      {R"("prompt": [1, 100])", "prompt: contains integer 100; use integers from 0 to 99"},
      {R"("prompt": [1, -1])", "prompt: contains integer -1; use integers from 0 to 99"},
      {R"("prompt": ["a", 5])", "prompt: must be an array of token ids, not integer 5"},
      {R"("prompt": [["a"]])", "prompt: contains string \"a\"; use integers from 0 to 99"},
      {R"("prompt": )" + json_list_of(9, "\"a\""), "prompt: contains 9 prompts; send at most 8"},
      {kHiPrompt + R"(, "stop": 5)", "stop: contains integer 5; use stop strings of 1 to 1024 bytes"},
      {kHiPrompt + R"(, "stop": "")", "stop: contains string \"\"; use stop strings of 1 to 1024 bytes"},
      {kHiPrompt + R"(, "stop": ["a", null])", "stop: contains null null; use stop strings of 1 to 1024 bytes"},
      {kHiPrompt + R"(, "stop": )" + quoted_text(1025), "stop: contains string; use stop strings of 1 to 1024 bytes"},
      {kHiPrompt + R"(, "stop": )" + json_list_of(17, "\"a\""), "stop: contains 17 strings; send at most 16"},
      {kHiPrompt + R"(, "bad_words": "a")", "bad_words: must be an array of strings, not string \"a\""},
      {kHiPrompt + R"(, "bad_words": [1])", "bad_words: contains integer 1; use words of 1 to 1024 bytes"},
      {kHiPrompt + R"(, "bad_words": [""])", "bad_words: contains string \"\"; use words of 1 to 1024 bytes"},
      {kHiPrompt + R"(, "bad_words": [)" + quoted_text(1025) + "]", "bad_words: contains string; use words of 1 to 1024 bytes"},
      {kHiPrompt + R"(, "bad_words": )" + json_list_of(1001, "\"a\""), "bad_words: contains 1001 words; send at most 1000"},
      {kHiPrompt + R"(, "logit_bias": [1])", "logit_bias: must be an object, not array"},
      {kHiPrompt + R"(, "logit_bias": {"x": 1})", "logit_bias: has the invalid key string \"x\"; use token ids from 0 to 99 as keys"},
      {kHiPrompt + R"(, "logit_bias": {"1 ": 1})", "logit_bias: has the invalid key string \"1 \"; use token ids from 0 to 99 as keys"},
      {kHiPrompt + R"(, "logit_bias": {"100": 1})", "logit_bias: has the invalid key string \"100\"; use token ids from 0 to 99 as keys"},
      {kHiPrompt + R"(, "logit_bias": {"-1": 1})", "logit_bias: has the invalid key string \"-1\"; use token ids from 0 to 99 as keys"},
      {kHiPrompt + R"(, "logit_bias": {"1": "a"})", "logit_bias: of token 1 must be a number, not string \"a\""},
      {kHiPrompt + R"(, "repetition_detection": 3)",
       R"(repetition_detection: must be an object, not integer 3; send {"max_pattern_size": 20, "min_count": 3})"},
      {kHiPrompt + R"(, "repetition_detection": {"max_pattern_size": -1})",
       "repetition_detection.max_pattern_size: is -1; use 0 to 2147483647"},
      {kHiPrompt + R"(, "repetition_detection": {"min_pattern_size": 2147483648})",
       "repetition_detection.min_pattern_size: is 2147483648; use 0 to 2147483647"},
      {kHiPrompt + R"(, "repetition_detection": {"min_count": -1})", "repetition_detection.min_count: is -1; use 0 to 2147483647"},
      {kHiPrompt + R"(, "repetition_detection": {"min_coumt": 1})",
       "repetition_detection.min_coumt: is not a field of this request; did you mean 'min_count'?"},
      {kHiPrompt + R"(, "repetition_detection": {"xyz": 1})", "repetition_detection.xyz: is not a field of this request; remove it"},
      {kHiPrompt + R"(, "temperature": "hot")", "temperature: must be a number, not string \"hot\""},
      {kHiPrompt + R"(, "ignore_eos": 1)", "ignore_eos: must be a boolean, not integer 1; send true or false"},
      {kHiPrompt + R"(, "model": 3)", "model: must be a string, not integer 3"},
      {kHiPrompt + R"(, "top_k": -2)", "top_k: is -2; use -1 to 2147483647"},
      {kHiPrompt + R"(, "top_k": 1.5)", "top_k: must be an integer, not number 1.5E0"},
      {kHiPrompt + R"(, "top_k": 9e15)", "top_k: must be an integer, not number 9E15"},
      {kHiPrompt + R"(, "priority": 9223372036854775808)",
       "priority: is 9223372036854775808; use -9223372036854775808 to 9223372036854775807"},
      {kHiPrompt + R"(, "allowed_token_ids": [])", "allowed_token_ids: is empty, which allows no token; leave it out"},
      {kHiPrompt + R"(, "allowed_token_ids": [100])", "allowed_token_ids: contains integer 100; use integers from 0 to 99"},
      {kHiPrompt + R"(, "stop_token_ids": 5)", "stop_token_ids: must be an array of token ids, not integer 5"},
      {kHiPrompt + R"(, "max_tokens": -1)", "max_tokens: is -1; use 0 to 2147483647"},
      {kHiPrompt + R"(, "max_tokens": 2147483648)", "max_tokens: is 2147483648; use 0 to 2147483647"},
      {kHiPrompt + R"(, "min_tokens": -1)", "min_tokens: is -1; use 0 to 2147483647"},
      {kHiPrompt + R"(, "min_tokens": 17)", "min_tokens: 17 is more than max_tokens (16); lower min_tokens"},
      {kHiPrompt + R"(, "n": 0)", "n: is 0; use 1 to 2147483647"},
      {kHiPrompt + R"(, "best_of": 0)", "best_of: is 0; use 1 to 2147483647"},
      {kHiPrompt + R"(, "n": 3, "best_of": 2)", "best_of: is 2, which is less than n (3); raise it, or lower n"},
      {kHiPrompt + R"(, "best_of": 2, "stream": true)",
       "best_of: must not exceed n in a stream: the best choices are known only at the end; do not stream"},
      {kHiPrompt + R"(, "n": 9)", "n: the number of prompts times n is 9; request at most 8 choices"},
      {R"("prompt": ["a", "b", "c"], "best_of": 3)", "best_of: the number of prompts times best_of is 9; request at most 8 choices"},
      {kHiPrompt + R"(, "n": 2, "temperature": 0)", "n: must be 1 with temperature 0: all choices would be the same; raise temperature"},
      {kHiPrompt + R"(, "best_of": 2, "temperature": 0)",
       "best_of: must be 1 with temperature 0: all choices would be the same; raise temperature"},
      {kHiPrompt + R"(, "length_penalty": 2)",
       "length_penalty: is not supported by this server, except as 1; send use_beam_search as well"},
      {kHiPrompt + R"(, "use_beam_search": true, "stream": true)",
       "stream: is not supported with use_beam_search: the results are known only at the end; do not stream"},
      {kHiPrompt + R"(, "use_beam_search": true, "stop": "a")",
       "stop: is not supported with use_beam_search; leave it out, or do not use beam search"},
      {kHiPrompt + R"(, "use_beam_search": true, "n": 2, "best_of": 3)",
       "best_of: is not supported with use_beam_search; leave it out; n is the beam width"},
      {kHiPrompt + R"(, "use_beam_search": true, "echo": true, "logprobs": 0)",
       "echo: is not supported with logprobs and use_beam_search: beam search has no prompt logprobs; leave one of them out"},
      {kHiPrompt + R"(, "stream": true, "stream_options": 3)", "stream_options: must be an object, not integer 3"},
      {kHiPrompt + R"(, "stream_options": {})", "stream_options: requires stream; send \"stream\": true as well"},
      {kHiPrompt + R"(, "stream": true, "stream_options": {"continuous_usage_stats": 1})",
       "stream_options.continuous_usage_stats: must be a boolean, not integer 1; send true or false"},
      {kHiPrompt + R"(, "prompt_logprobs": 1, "stream": true)", "prompt_logprobs: is not supported with stream; do not stream"},
      {kHiPrompt + R"(, "prompt_logprobs": 21)", "prompt_logprobs: is 21; use 0 to 20"},
      {kHiPrompt + R"(, "logprobs": 21)", "logprobs: is 21; use 0 to 20"},
      {kHiPrompt + R"(, "cache_salt": "")", "cache_salt: is empty; send a string that others cannot guess, or leave it out"},
      {kHiPrompt + R"(, "hints": 1)", R"(hints: must be an object, not integer 1; send {"name": "text"})"},
      {kHiPrompt + R"(, "hints": {"a": 1})", R"(hints: contains integer 1; send {"name": "text"})"},
      {kHiPrompt + R"(, "tenant": "x")",
       "tenant: is not supported by this server, except as null; leave it out: the API key determines the tenant"},
      {kHiPrompt + R"(, "vllm_xargs": [])", "vllm_xargs: must be an object, not array"},
      {kHiPrompt + R"(, "is_last_step": true)", "is_last_step: requires job_id; send the job_id as well"},
      {kHiPrompt + R"(, "truncate_prompt_tokens": 0)", "truncate_prompt_tokens: is 0; use -1, or the number of tokens to keep"},
      {kHiPrompt + R"(, "truncate_prompt_tokens": -2)", "truncate_prompt_tokens: is -2; use -1 to 2147483647"},
      {kHiPrompt + R"(, "suffix": "x", "echo": true)",
       "suffix: is not supported with echo, session or truncate_prompt_tokens; leave out these fields or the suffix"},
      {kHiPrompt + R"(, "suffix": "x", "session": true, "stream": true)",
       "suffix: is not supported with echo, session or truncate_prompt_tokens; leave out these fields or the suffix"},
      {R"("prompt": ["a", "b"], "fail_if_not_cached": true)",
       "fail_if_not_cached: is not supported with hidden states or several prompts; send one prompt without hidden states"},
      {kHiPrompt + R"(, "fail_if_not_cached": true, "kv_transfer_params": {"hidden_states": true})",
       "fail_if_not_cached: is not supported with hidden states or several prompts; send one prompt without hidden states"},
      {kHiPrompt + R"(, "stream": true, "kv_transfer_params": {"hidden_states": true})",
       "kv_transfer_params: requests hidden states, which require one prompt and no stream; do not stream, and send one prompt"},
      {R"("prompt": ["a", "b"], "kv_transfer_params": {"hidden_states": true})",
       "kv_transfer_params: requests hidden states, which require one prompt and no stream; do not stream, and send one prompt"},
      {kHiPrompt + R"(, "return_routed_experts": true)",
       "return_routed_experts: is true, but this server does not return routed experts; start the server with "
       "--enable-return-routed-experts"},
      {kHiPrompt + R"(, "routed_experts_prompt_start": 1)",
       R"(routed_experts_prompt_start: requires return_routed_experts; send "return_routed_experts": true as well)"},
      {kHiPrompt + R"(, "session": true)", R"(session: requires stream; send "stream": true as well)"},
      {R"("prompt": ["a", "b"], "session": true, "stream": true)",
       "session: is not supported with several prompts; start a session for each prompt"},
      {kHiPrompt + R"(, "session": true, "stream": true, "n": 2)",
       "n: is not supported with session; leave it out; stop_token_ids can end an answer"},
      {kHiPrompt + R"(, "session": true, "stream": true, "stop": "a")",
       "stop: is not supported with session; leave it out; stop_token_ids can end an answer"},
      {kHiPrompt + R"(, "session": true, "stream": true, "echo": true)",
       "echo: is not supported with session; leave it out; stop_token_ids can end an answer"},
      {kHiPrompt + R"(, "session": true, "stream": true, "max_tokens": 0)",
       "max_tokens: is not supported with session; leave it out; stop_token_ids can end an answer"},
  };
  for (const BodyCase& one : cases) EXPECT_EQ(request_error(text_request(one.fields)), one.error) << one.fields.substr(0, 200);
}

TEST(CompletionRanges, IncludeTheirEnds) {
  for (const std::string& fields : {R"("stop": )" + quoted_text(1024),
                                    R"("stop": )" + json_list_of(16, "\"a\""),
                                    R"("bad_words": [)" + quoted_text(1024) + "]",
                                    R"("bad_words": )" + json_list_of(1000, "\"a\""),
                                    std::string(R"("logprobs": 20)"),
                                    std::string(R"("prompt_logprobs": 20)"),
                                    std::string(R"("n": 8)"),
                                    std::string(R"("best_of": 8)"),
                                    std::string(R"("max_tokens": 2147483647)"),
                                    std::string(R"("min_tokens": 16)"),
                                    std::string(R"("logit_bias": {"0": 1, "99": 1})"),
                                    std::string(R"("allowed_token_ids": [0, 99])"),
                                    std::string(R"("top_k": 2147483647)"),
                                    std::string(R"("top_k": 16.0)"),
                                    std::string(R"("priority": 9223372036854775807)"),
                                    std::string(R"("truncate_prompt_tokens": 1)"),
                                    std::string(R"("n": 1, "temperature": 0)"),
                                    std::string(R"("n": 2, "temperature": 0, "use_beam_search": true)"),
                                    std::string(R"("routed_experts_prompt_start": 0)"),
                                    std::string(R"("length_penalty": 1)"),
                                    std::string(R"("length_penalty": 0.5, "use_beam_search": true)"),
                                    std::string(R"("session": true, "stream": true)")}) {
    EXPECT_EQ(request_error(text_request(kHiPrompt + ", " + fields)), "accepted") << fields.substr(0, 100);
  }
  EXPECT_TRUE(text_request(R"("prompt": )" + json_list_of(8, "\"a\"")));
  EXPECT_EQ(text_request(R"("prompt": [0, 99])")->prompts, std::vector<Prompt>{(std::vector<TokenId>{0, 99})});
  EXPECT_EQ(text_request(kHiPrompt + R"(, "top_k": -1)")->sampling.top_k, 0) << "-1 turns it off";
  EXPECT_EQ(text_request(kHiPrompt + R"(, "top_k": 16.0)")->sampling.top_k, 16);
  EXPECT_EQ(text_request(kHiPrompt + R"(, "truncate_prompt_tokens": -1)")->truncate_to, -1);
  EXPECT_EQ(text_request(kHiPrompt + R"(, "seed": -1)")->sampling.seed, ~std::uint64_t{0});
  EXPECT_EQ(text_request(kHiPrompt + R"(, "use_beam_search": true, "length_penalty": 0.5)")->beam_search->length_penalty, 0.5);
  EXPECT_EQ(text_request(kHiPrompt + R"(, "use_beam_search": true)")->beam_search->length_penalty, 1.0);
  EXPECT_EQ(text_request(kHiPrompt + R"(, "stop": "a")")->stop, std::vector<std::string>{"a"});
  EXPECT_EQ(text_request(kHiPrompt + R"(, "bad_words": ["a", "b"])")->bad_words, (std::vector<std::string>{"a", "b"}));
}

TEST(CompletionFields, SetTheMembersThatTheyName) {
  const auto request =
      text_request(kHiPrompt + R"(, "stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true},
      "return_token_ids": true, "return_tokens_as_token_ids": true, "fail_if_not_cached": true, "add_special_tokens": false,
      "prompt_cache_key": "key", "model": "m", "session": true)");
  ASSERT_TRUE(request) << request.error().to_string();
  EXPECT_TRUE(request->stream);
  EXPECT_TRUE(request->include_usage);
  EXPECT_TRUE(request->continuous_usage);
  EXPECT_TRUE(request->return_token_ids);
  EXPECT_TRUE(request->tokens_as_ids);
  EXPECT_TRUE(request->cached_only);
  EXPECT_FALSE(request->add_special_tokens);
  EXPECT_TRUE(request->session);
  EXPECT_EQ(request->session_key, "key");
  EXPECT_EQ(request->model, "m");
  const auto plain = text_request(kHiPrompt);
  EXPECT_FALSE(plain->include_usage);
  EXPECT_FALSE(plain->continuous_usage);
  EXPECT_FALSE(plain->return_token_ids);
  EXPECT_FALSE(plain->tokens_as_ids);
  EXPECT_FALSE(plain->cached_only);
  EXPECT_FALSE(plain->session);
  EXPECT_FALSE(plain->echo);
  EXPECT_FALSE(plain->suffix);
  EXPECT_FALSE(plain->include_stop);
  EXPECT_FALSE(plain->sampling.ignore_eos);
  EXPECT_TRUE(plain->skip_special_tokens);
  EXPECT_EQ(plain->sampling.min_tokens, 0U);
  EXPECT_EQ(plain->sampling.top_k, 0);
  EXPECT_EQ(plain->sampling.min_p, 0.0F);
  EXPECT_EQ(plain->sampling.repetition_penalty, 1.0F);
  EXPECT_EQ(plain->sampling.presence_penalty, 0.0F);
  EXPECT_EQ(plain->sampling.frequency_penalty, 0.0F);
  EXPECT_EQ(plain->priority, 0);
  EXPECT_FALSE(plain->sampling.routed_experts);
  EXPECT_EQ(plain->first_routed_token, 0U);
  EXPECT_EQ(text_request(kHiPrompt + R"(, "suffix": "end")")->suffix, "end");
  EXPECT_FALSE(text_request(kHiPrompt + R"(, "suffix": "")")->suffix);
  EXPECT_TRUE(text_request(kHiPrompt + R"(, "is_last_step": true, "prompt_cache_key": "key")")) << "the key names the job";
  const auto chat = chat_request(kHiMessage + R"(, "include_reasoning": false, "reasoning_effort": "none", "add_generation_prompt": false,
      "continue_final_message": true)");
  ASSERT_TRUE(chat) << chat.error().to_string();
  EXPECT_FALSE(chat->includes_reasoning);
  EXPECT_TRUE(chat->chat.continue_final_message);
  EXPECT_FALSE(chat->chat.add_generation_prompt);
  EXPECT_EQ(chat->chat.template_kwargs.at("reasoning_effort"), "none");
  EXPECT_EQ(chat->chat.template_kwargs.at("enable_thinking"), false);
  EXPECT_FALSE(chat_request(kHiMessage + R"(, "reasoning_effort": "low")")->chat.template_kwargs.contains("enable_thinking"));
  EXPECT_TRUE(chat_request(kHiMessage)->includes_reasoning);
  EXPECT_EQ(chat_request(kHiMessage)->sampling.max_tokens, 2147483647U) << "as many as fit";
}

TEST(DefaultFields, AreFilledWhereTheBodyHasNone) {
  GenerationDefaults defaults;
  defaults.temperature = 0.5;
  defaults.top_p = 0.25;
  defaults.top_k = 7;
  defaults.min_p = 0.125;
  defaults.repetition_penalty = 1.5;
  boost::json::object body{{"top_p", nullptr}, {"top_k", 3}};
  fill_defaults(body, defaults);
  EXPECT_EQ(body.at("temperature"), 0.5);
  EXPECT_EQ(body.at("top_p"), 0.25);
  EXPECT_EQ(body.at("top_k"), 3);
  EXPECT_EQ(body.at("min_p"), 0.125);
  EXPECT_EQ(body.at("repetition_penalty"), 1.5);
  boost::json::object plain;
  fill_defaults(plain, {});
  EXPECT_TRUE(plain.empty());
  RequestLimits limits = kBodyLimits;
  limits.defaults.max_tokens = 30;
  EXPECT_EQ(parse_completion_request(Api::chat, "{" + kHiMessage + "}", limits)->default_max_tokens, 30U);
  limits.defaults.max_limit = 20;
  EXPECT_EQ(parse_completion_request(Api::chat, "{" + kHiMessage + "}", limits)->default_max_tokens, 20U);
  EXPECT_EQ(parse_completion_request(Api::chat, "{" + kHiMessage + R"(, "max_tokens": 21})", limits)->max_tokens, 20U);
  EXPECT_EQ(parse_completion_request(Api::chat, "{" + kHiMessage + R"(, "max_tokens": 19})", limits)->max_tokens, 19U);
  limits.defaults.max_tokens.reset();
  EXPECT_EQ(parse_completion_request(Api::chat, "{" + kHiMessage + "}", limits)->default_max_tokens, 20U);
  EXPECT_FALSE(parse_completion_request(Api::chat, "{" + kHiMessage + "}", kBodyLimits)->default_max_tokens);
}

TEST(ExpertFields, AreReadWhereTheServerReturnsThem) {
  RequestLimits limits = kBodyLimits;
  limits.routed_experts = true;
  const auto asks = [&](const std::string& fields) {
    return parse_completion_request(Api::completion, "{" + kHiPrompt + fields + "}", limits);
  };
  EXPECT_TRUE(asks("")->sampling.routed_experts);
  EXPECT_FALSE(asks(R"(, "return_routed_experts": false)")->sampling.routed_experts);
  EXPECT_FALSE(asks(R"(, "stream": true)")->sampling.routed_experts);
  EXPECT_EQ(asks(R"(, "routed_experts_prompt_start": 2)")->first_routed_token, 2U);
  const std::pair<const char*, const char*> others[] = {{R"("stream": true)", "stream"},
                                                        {R"("use_beam_search": true)", "use_beam_search"},
                                                        {R"("fail_if_not_cached": true)", "fail_if_not_cached"},
                                                        {R"("kv_transfer_params": {"hidden_states": true})", "kv_transfer_params"},
                                                        {R"("session": true, "stream": true)", "session"}};
  for (const auto& [fields, name] : others)
    EXPECT_EQ(request_error(asks(std::string(R"(, "return_routed_experts": true, )") + fields)),
              std::string("return_routed_experts: is not supported with ") + name + "; leave one of them out");
}

}  // namespace
}  // namespace quire
