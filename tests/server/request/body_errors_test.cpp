// Tests the error of each invalid field of a completion or a chat: its field, its text and its remedy. Tests also the largest and the
// smallest value that each field accepts.
#include <gtest/gtest.h>

#include <boost/json/serialize.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/request/completion_request.h"
#include "server/request/object_reader.h"
#include "server/request/request_fields.h"

namespace quire::body_errors_test {
namespace {

constexpr RequestLimits kLimits{.max_choices = 8, .vocab_size = 100};

Result<CompletionRequest> text_request(const std::string& fields) {
  return parse_completion_request(Api::completion, "{" + fields + "}", kLimits);
}

Result<CompletionRequest> chat_request(const std::string& fields) {
  return parse_completion_request(Api::chat, "{" + fields + "}", kLimits);
}

std::string error_of(const Result<CompletionRequest>& request) {
  return request ? "accepted" : request.error().to_string();
}

// Returns a JSON list of `count` copies.
std::string list_of(std::size_t count, const std::string& item) {
  std::string list = "[";
  for (std::size_t i = 0; i < count; ++i) list += (i == 0 ? "" : ",") + item;
  return list + "]";
}

std::string quoted(std::size_t num_bytes) {
  return '"' + std::string(num_bytes, 'x') + '"';
}

struct BodyCase {
  std::string fields, error;
};

const std::string kPrompt = R"("prompt": "hi")";
const std::string kHi = R"("messages": [{"role": "user", "content": "hi"}])";

TEST(CompletionErrors, NameTheFieldTheProblemAndTheFix) {
  const BodyCase cases[] = {
      {"", "prompt: is missing; send a string"},
      {R"("prompt": {})", "prompt: must be a string, a list of strings, token ids or a list of lists of token ids, not object"},
      {R"("prompt": [])", "prompt: must be a string, a list of strings, token ids or a list of lists of token ids, not array"},
      {R"("prompt": [1, 100])", "prompt: contains integer 100; use integers from 0 to 99"},
      {R"("prompt": [1, -1])", "prompt: contains integer -1; use integers from 0 to 99"},
      {R"("prompt": ["a", 5])", "prompt: must be an array of token ids, not integer 5"},
      {R"("prompt": [["a"]])", "prompt: contains string \"a\"; use integers from 0 to 99"},
      {R"("prompt": )" + list_of(9, "\"a\""), "prompt: contains 9 prompts; send at most 8"},
      {kPrompt + R"(, "stop": 5)", "stop: contains integer 5; use stop strings of 1 to 1024 bytes"},
      {kPrompt + R"(, "stop": "")", "stop: contains string \"\"; use stop strings of 1 to 1024 bytes"},
      {kPrompt + R"(, "stop": ["a", null])", "stop: contains null null; use stop strings of 1 to 1024 bytes"},
      {kPrompt + R"(, "stop": )" + quoted(1025), "stop: contains string; use stop strings of 1 to 1024 bytes"},
      {kPrompt + R"(, "stop": )" + list_of(17, "\"a\""), "stop: contains 17 strings; send at most 16"},
      {kPrompt + R"(, "bad_words": "a")", "bad_words: must be an array of strings, not string \"a\""},
      {kPrompt + R"(, "bad_words": [1])", "bad_words: contains integer 1; use words of 1 to 1024 bytes"},
      {kPrompt + R"(, "bad_words": [""])", "bad_words: contains string \"\"; use words of 1 to 1024 bytes"},
      {kPrompt + R"(, "bad_words": [)" + quoted(1025) + "]", "bad_words: contains string; use words of 1 to 1024 bytes"},
      {kPrompt + R"(, "bad_words": )" + list_of(1001, "\"a\""), "bad_words: contains 1001 words; send at most 1000"},
      {kPrompt + R"(, "logit_bias": [1])", "logit_bias: must be an object, not array"},
      {kPrompt + R"(, "logit_bias": {"x": 1})", "logit_bias: has the invalid key string \"x\"; use token ids from 0 to 99 as keys"},
      {kPrompt + R"(, "logit_bias": {"1 ": 1})", "logit_bias: has the invalid key string \"1 \"; use token ids from 0 to 99 as keys"},
      {kPrompt + R"(, "logit_bias": {"100": 1})", "logit_bias: has the invalid key string \"100\"; use token ids from 0 to 99 as keys"},
      {kPrompt + R"(, "logit_bias": {"-1": 1})", "logit_bias: has the invalid key string \"-1\"; use token ids from 0 to 99 as keys"},
      {kPrompt + R"(, "logit_bias": {"1": "a"})", "logit_bias: of token 1 must be a number, not string \"a\""},
      {kPrompt + R"(, "repetition_detection": 3)",
       R"(repetition_detection: must be an object, not integer 3; send {"max_pattern_size": 20, "min_count": 3})"},
      {kPrompt + R"(, "repetition_detection": {"max_pattern_size": -1})",
       "repetition_detection.max_pattern_size: is -1; use 0 to 2147483647"},
      {kPrompt + R"(, "repetition_detection": {"min_pattern_size": 2147483648})",
       "repetition_detection.min_pattern_size: is 2147483648; use 0 to 2147483647"},
      {kPrompt + R"(, "repetition_detection": {"min_count": -1})", "repetition_detection.min_count: is -1; use 0 to 2147483647"},
      {kPrompt + R"(, "repetition_detection": {"min_coumt": 1})",
       "repetition_detection.min_coumt: is not a field of this request; did you mean 'min_count'?"},
      {kPrompt + R"(, "repetition_detection": {"xyz": 1})", "repetition_detection.xyz: is not a field of this request; remove it"},
      {kPrompt + R"(, "temperature": "hot")", "temperature: must be a number, not string \"hot\""},
      {kPrompt + R"(, "ignore_eos": 1)", "ignore_eos: must be a boolean, not integer 1; send true or false"},
      {kPrompt + R"(, "model": 3)", "model: must be a string, not integer 3"},
      {kPrompt + R"(, "top_k": -2)", "top_k: is -2; use -1 to 2147483647"},
      {kPrompt + R"(, "top_k": 1.5)", "top_k: must be an integer, not number 1.5E0"},
      {kPrompt + R"(, "top_k": 9e15)", "top_k: must be an integer, not number 9E15"},
      {kPrompt + R"(, "priority": 9223372036854775808)",
       "priority: is 9223372036854775808; use -9223372036854775808 to 9223372036854775807"},
      {kPrompt + R"(, "allowed_token_ids": [])", "allowed_token_ids: is empty, which allows no token; leave it out"},
      {kPrompt + R"(, "allowed_token_ids": [100])", "allowed_token_ids: contains integer 100; use integers from 0 to 99"},
      {kPrompt + R"(, "stop_token_ids": 5)", "stop_token_ids: must be an array of token ids, not integer 5"},
      {kPrompt + R"(, "max_tokens": -1)", "max_tokens: is -1; use 0 to 2147483647"},
      {kPrompt + R"(, "max_tokens": 2147483648)", "max_tokens: is 2147483648; use 0 to 2147483647"},
      {kPrompt + R"(, "min_tokens": -1)", "min_tokens: is -1; use 0 to 2147483647"},
      {kPrompt + R"(, "min_tokens": 17)", "min_tokens: 17 is more than max_tokens (16); lower min_tokens"},
      {kPrompt + R"(, "n": 0)", "n: is 0; use 1 to 2147483647"},
      {kPrompt + R"(, "best_of": 0)", "best_of: is 0; use 1 to 2147483647"},
      {kPrompt + R"(, "n": 3, "best_of": 2)", "best_of: is 2, which is less than n (3); raise it, or lower n"},
      {kPrompt + R"(, "best_of": 2, "stream": true)",
       "best_of: must not exceed n in a stream: the best choices are known only at the end; do not stream"},
      {kPrompt + R"(, "n": 9)", "n: the number of prompts times n is 9; request at most 8 choices"},
      {R"("prompt": ["a", "b", "c"], "best_of": 3)", "best_of: the number of prompts times best_of is 9; request at most 8 choices"},
      {kPrompt + R"(, "n": 2, "temperature": 0)", "n: must be 1 with temperature 0: all choices would be the same; raise temperature"},
      {kPrompt + R"(, "best_of": 2, "temperature": 0)",
       "best_of: must be 1 with temperature 0: all choices would be the same; raise temperature"},
      {kPrompt + R"(, "length_penalty": 2)", "length_penalty: is not supported by this server, except as 1; send use_beam_search as well"},
      {kPrompt + R"(, "use_beam_search": true, "stream": true)",
       "stream: is not supported with use_beam_search: the results are known only at the end; do not stream"},
      {kPrompt + R"(, "use_beam_search": true, "stop": "a")",
       "stop: is not supported with use_beam_search; leave it out, or do not use beam search"},
      {kPrompt + R"(, "use_beam_search": true, "n": 2, "best_of": 3)",
       "best_of: is not supported with use_beam_search; leave it out; n is the beam width"},
      {kPrompt + R"(, "use_beam_search": true, "echo": true, "logprobs": 0)",
       "echo: is not supported with logprobs and use_beam_search: beam search has no prompt logprobs; leave one of them out"},
      {kPrompt + R"(, "stream": true, "stream_options": 3)", "stream_options: must be an object, not integer 3"},
      {kPrompt + R"(, "stream_options": {})", "stream_options: requires stream; send \"stream\": true as well"},
      {kPrompt + R"(, "stream": true, "stream_options": {"continuous_usage_stats": 1})",
       "stream_options.continuous_usage_stats: must be a boolean, not integer 1; send true or false"},
      {kPrompt + R"(, "prompt_logprobs": 1, "stream": true)", "prompt_logprobs: is not supported with stream; do not stream"},
      {kPrompt + R"(, "prompt_logprobs": 21)", "prompt_logprobs: is 21; use 0 to 20"},
      {kPrompt + R"(, "logprobs": 21)", "logprobs: is 21; use 0 to 20"},
      {kPrompt + R"(, "cache_salt": "")", "cache_salt: is empty; send a string that others cannot guess, or leave it out"},
      {kPrompt + R"(, "hints": 1)", R"(hints: must be an object, not integer 1; send {"name": "text"})"},
      {kPrompt + R"(, "hints": {"a": 1})", R"(hints: contains integer 1; send {"name": "text"})"},
      {kPrompt + R"(, "tenant": "x")",
       "tenant: is not supported by this server, except as null; leave it out: the API key determines the tenant"},
      {kPrompt + R"(, "vllm_xargs": [])", "vllm_xargs: must be an object, not array"},
      {kPrompt + R"(, "is_last_step": true)", "is_last_step: requires job_id; send the job_id as well"},
      {kPrompt + R"(, "truncate_prompt_tokens": 0)", "truncate_prompt_tokens: is 0; use -1, or the number of tokens to keep"},
      {kPrompt + R"(, "truncate_prompt_tokens": -2)", "truncate_prompt_tokens: is -2; use -1 to 2147483647"},
      {kPrompt + R"(, "suffix": "x", "echo": true)",
       "suffix: is not supported with echo, session or truncate_prompt_tokens; leave out these fields or the suffix"},
      {kPrompt + R"(, "suffix": "x", "session": true, "stream": true)",
       "suffix: is not supported with echo, session or truncate_prompt_tokens; leave out these fields or the suffix"},
      {R"("prompt": ["a", "b"], "fail_if_not_cached": true)",
       "fail_if_not_cached: is not supported with hidden states or several prompts; send one prompt without hidden states"},
      {kPrompt + R"(, "fail_if_not_cached": true, "kv_transfer_params": {"hidden_states": true})",
       "fail_if_not_cached: is not supported with hidden states or several prompts; send one prompt without hidden states"},
      {kPrompt + R"(, "stream": true, "kv_transfer_params": {"hidden_states": true})",
       "kv_transfer_params: requests hidden states, which require one prompt and no stream; do not stream, and send one prompt"},
      {R"("prompt": ["a", "b"], "kv_transfer_params": {"hidden_states": true})",
       "kv_transfer_params: requests hidden states, which require one prompt and no stream; do not stream, and send one prompt"},
      {kPrompt + R"(, "return_routed_experts": true)",
       "return_routed_experts: is true, but this server does not return routed experts; start the server with "
       "--enable-return-routed-experts"},
      {kPrompt + R"(, "routed_experts_prompt_start": 1)",
       R"(routed_experts_prompt_start: requires return_routed_experts; send "return_routed_experts": true as well)"},
      {kPrompt + R"(, "session": true)", R"(session: requires stream; send "stream": true as well)"},
      {R"("prompt": ["a", "b"], "session": true, "stream": true)",
       "session: is not supported with several prompts; start a session for each prompt"},
      {kPrompt + R"(, "session": true, "stream": true, "n": 2)",
       "n: is not supported with session; leave it out; stop_token_ids can end an answer"},
      {kPrompt + R"(, "session": true, "stream": true, "stop": "a")",
       "stop: is not supported with session; leave it out; stop_token_ids can end an answer"},
      {kPrompt + R"(, "session": true, "stream": true, "echo": true)",
       "echo: is not supported with session; leave it out; stop_token_ids can end an answer"},
      {kPrompt + R"(, "session": true, "stream": true, "max_tokens": 0)",
       "max_tokens: is not supported with session; leave it out; stop_token_ids can end an answer"},
  };
  for (const BodyCase& one : cases) EXPECT_EQ(error_of(text_request(one.fields)), one.error) << one.fields.substr(0, 200);
}

TEST(ChatErrors, NameTheFieldTheProblemAndTheFix) {
  const BodyCase cases[] = {
      {"", R"(messages: is missing; send [{"role": "user", "content": "..."}])"},
      {R"("messages": [])", R"(messages: must be an array with at least one message; send [{"role": "user", "content": "..."}])"},
      {R"("messages": {})", R"(messages: must be an array with at least one message; send [{"role": "user", "content": "..."}])"},
      {R"("messages": [1])", "messages[0]: must be an object, not integer 1"},
      {R"("messages": [{"content": "a"}])", "messages[0].role: must be a string; use system, user, assistant or tool"},
      {R"("messages": [{"role": "user", "content": null}])", "messages[0].content: is missing; send a string"},
      {R"("messages": [{"role": "user", "content": 5}])", "messages[0].content: must be a string or an array of parts, not integer 5"},
      {R"("messages": [{"role": "user", "content": ["a"]}])",
       R"(messages[0].content[0]: must be an object with a type; send {"type": "text", "text": ...})"},
      {R"("messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": 3}]}])",
       R"(messages[0].content[1]: must be an object with a type; send {"type": "text", "text": ...})"},
      {R"("messages": [{"role": "user", "content": [{"type": "audio"}]}])",
       R"(messages[0].content[0]: has type string "audio"; send text parts: this model supports text only)"},
      {R"("messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}])", "messages[0].content[0].text: must be a string"},
      {R"("messages": [{"role": "assistant", "content": [{"type": "refusal"}]}])", "messages[0].content[0].refusal: must be a string"},
      {R"("messages": [{"role": "assistant", "tool_calls": 1}])", "messages[0].tool_calls: must be an array"},
      {R"("messages": [{"role": "assistant", "tool_calls": [1]}])", "messages[0].tool_calls: must contain objects with a function"},
      {R"("messages": [{"role": "assistant", "tool_calls": [{"function": 1}]}])",
       "messages[0].tool_calls: must contain objects with a function"},
      {R"("messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": "[1]"}}]}])",
       "messages[0].tool_calls: function.arguments must be an object, not array; send the text of a JSON object"},
      {R"("messages": [{"role": "tool", "content": "a"}])",
       "messages[0].role: is a tool result without a tool call; send the assistant message with its tool_calls before the results"},
      {R"("messages": [{"role": "tool", "tool_call_id": "1", "content": "a"}])",
       R"(messages[0].tool_call_id: string "1" is not the id of an earlier tool call; send the assistant message with its tool_calls )"
       "before the results"},
      {kHi + R"(, "continue_final_message": true)",
       R"(continue_final_message: cannot be combined with add_generation_prompt; send "add_generation_prompt": false as well)"},
      {kHi + R"(, "chat_template_kwargs": 3)", "chat_template_kwargs: must be an object, not integer 3"},
      {kHi + R"(, "reasoning_effort": "much")", R"(reasoning_effort: is "much"; use one of none, minimal, low, medium, high, xhigh, max)"},
      {kHi + R"(, "max_tokens": 0)", "max_tokens: is 0; use 1 to 2147483647"},
      {kHi + R"(, "max_completion_tokens": 0)", "max_completion_tokens: is 0; use 1 to 2147483647"},
      {kHi + R"(, "max_tokens": 2, "max_completion_tokens": 3)", "max_completion_tokens: differs from max_tokens; send only one of them"},
      {kHi + R"(, "top_logprobs": 1)", R"(top_logprobs: requires logprobs; send "logprobs": true as well)"},
      {kHi + R"(, "logprobs": true, "top_logprobs": 21)", "top_logprobs: is 21; use 0 to 20"},
      {kHi + R"(, "thinking": 3)", R"(thinking: is integer 3 without a known type; send {"type": "enabled"} or {"type": "disabled"})"},
      {kHi + R"(, "thinking": {"type": "often"})",
       R"(thinking: is object without a known type; send {"type": "enabled"} or {"type": "disabled"})"},
      {kHi + R"(, "reasoning": 3)", R"(reasoning: must be an object, not integer 3; send {"effort": "low"})"},
      {kHi + R"(, "reasoning": {"max_tokens": 5})",
       "reasoning.max_tokens: is not supported by this server, except as null; send max_tokens, which limits reasoning and answer "
       "together"},
      {kHi + R"(, "typical_p": 0.5)",
       "typical_p: is number 5E-1, which this endpoint does not support; send min_p, top_p or top_k instead; 1 is accepted and has no "
       "effect"},
      {kHi + R"(, "prompt_embeds": "x")",
       R"(prompt_embeds: is string "x", which this endpoint does not support; send text or token ids as prompt)"},
      {kHi + R"(, "mm_processor_kwargs": {"a": 1})", "mm_processor_kwargs: is object, which this endpoint does not support; leave it out"},
      {kHi + R"(, "max_new_tokens": 4, "max_tokens": 5)",
       "max_new_tokens: conflicts with max_tokens, which means the same; send only one of them"},
      {kHi + R"(, "temprature": 1)", "temprature: is not a field of this request; did you mean 'temperature'?"},
  };
  for (const BodyCase& one : cases) EXPECT_EQ(error_of(chat_request(one.fields)), one.error) << one.fields;
}

TEST(ToolErrors, NameTheToolTheProblemAndTheFix) {
  const std::string f = R"({"type": "function", "function": {"name": "f"}})";
  const auto tools = [](const std::string& list, const std::string& choice = {}) {
    return kHi + R"(, "tools": )" + list + (choice.empty() ? "" : R"(, "tool_choice": )" + choice);
  };
  const BodyCase cases[] = {
      {tools("3"), "tools: must be an array, not integer 3"},
      {tools("[3]"), "tools[0]: must be an object, not integer 3"},
      {tools("[" + f + R"(, {"type": "functoin", "name": "g"}])"), "accepted"},
      {tools(R"([{"type": "functoin", "function": {"name": "g"}}])"), R"(tools[0].type: is string "functoin"; did you mean "function"?)"},
      {tools(R"([{"type": "function"}])"), R"(tools[0].function: is missing; send {"type": "function", "function": {"name": "..."}})"},
      {tools(R"([{"type": "function", "function": "f"}])"), R"(tools[0].function: must be an object, not string "f")"},
      {tools(R"([{"type": "function", "function": {}}])"),
       "tools[0].function.name: is missing; use at most 128 letters, digits and _ - . : /"},
      {tools(R"([{"type": "function", "function": {"name": "a b"}}])"),
       R"(tools[0].function.name: is string "a b"; use at most 128 letters, digits and _ - . : /)"},
      {tools(R"([{"type": "function", "function": {"name": ""}}])"),
       R"(tools[0].function.name: is string ""; use at most 128 letters, digits and _ - . : /)"},
      {tools(R"([{"type": "function", "function": {"name": )" + quoted(129) + "}}]"),
       "tools[0].function.name: is string; use at most 128 letters, digits and _ - . : /"},
      {tools(R"([{"type": "function", "function": {"name": )" + quoted(128) + "}}]"), "accepted"},
      {tools(R"([{"type": "function", "function": {"name": "azAZ09_-.:/"}}])"), "accepted"},
      {tools(R"([{"type": "function", "function": {"name": "f", "parameters": 3}}])"),
       "tools[0].function.parameters: must be a JSON schema, not integer 3"},
      {tools(R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "array"}, "strict": true}}])"),
       R"(tools[0].function.parameters.type: is string "array"; use "object": arguments are an object)"},
      {tools(R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "array"}}}])"), "accepted"},
      {tools("[" + f + ", " + f + "]"), "tools[1].function.name: 'f' is used twice; give each tool a different name"},
      {tools("[" + f + "]", "3"),
       R"(tool_choice: is integer 3; send "auto", "none", "required" or {"type": "function", "function": {"name": "..."}})"},
      {tools("[]", "\"required\""), "tool_choice: requires a function in tools; send functions: this server does not run tools"},
      {tools("[" + f + "]", R"({"type": "function"})"),
       R"(tool_choice: does not name a function; send {"type": "function", "function": {"name": "..."}})"},
      {tools("[" + f + "]", R"({"type": "any", "name": "f"})"),
       R"(tool_choice: does not name a function; send {"type": "function", "function": {"name": "..."}})"},
      {tools("[" + f + "]", R"({"type": "function", "function": {"name": "g"}})"),
       "tool_choice: names 'g', which is not in tools; name a function in tools"},
      {tools("[" + f + "]", R"({"type": "allowed_tools", "allowed_tools": {}})"),
       "tool_choice.allowed_tools.tools: must be an array of tools"},
      {tools("[" + f + "]", R"({"type": "allowed_tools", "allowed_tools": {"tools": []}})"),
       "tool_choice.allowed_tools.tools: must be an array of tools"},
      {tools("[" + f + "]", R"({"type": "allowed_tools", "mode": "any", "tools": [{"type": "function", "name": "f"}]})"),
       R"(tool_choice.allowed_tools.mode: is string "any"; use auto or required)"},
      {tools("[" + f + "]", R"({"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]})"),
       "tool_choice: requires a tool that the server would have to run; allow a function"},
      {tools("[" + f + "]", R"({"type": "allowed_tools", "tools": [{"type": "function", "name": "g"}]})"),
       "tool_choice: names 'g', which is not in tools; name a function in tools"},
      {kHi + R"(, "parallel_tool_calls": 1)", "parallel_tool_calls: must be a boolean, not integer 1; send true or false"},
  };
  for (const BodyCase& one : cases) EXPECT_EQ(error_of(chat_request(one.fields)), one.error) << one.fields.substr(0, 250);
}

TEST(ToolChoice, SelectsWhichToolsMayOrMustBeCalled) {
  using Choice = ToolUse::Choice;
  struct ChoiceCase {
    std::string fields;
    Choice choice;
    std::string names;
    bool parallel;
    bool is_shown;  // the template gets the tools
  };
  const std::string both = R"(, "tools": [{"function": {"name": "f"}}, {"function": {"name": "g"}}])";
  const ChoiceCase cases[] = {
      {"", Choice::none, "", true, false},
      {R"(, "tools": [])", Choice::none, "", true, false},
      {both, Choice::automatic, "fg", true, true},
      {both + R"(, "tool_choice": "auto", "parallel_tool_calls": false)", Choice::automatic, "fg", false, true},
      {both + R"(, "tool_choice": "none")", Choice::none, "fg", true, false},
      {both + R"(, "tool_choice": "required")", Choice::required, "fg", true, true},
      {both + R"(, "tool_choice": {"type": "function", "function": {"name": "g"}})", Choice::required, "g", false, true},
      {both + R"(, "tool_choice": {"type": "function", "name": "f"})", Choice::required, "f", false, true},
      {both +
           R"(, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "name": "g"}]}})",
       Choice::automatic, "g", true, true},
      {both +
           R"(, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"function": {"name": "f"}}]}})",
       Choice::required, "f", true, true},
      {both + R"(, "tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": "g"}]})", Choice::automatic, "g", true,
       true},
      {both + R"(, "tool_choice": {"type": "allowed_tools", "tools": [{"type": "web_search"}]})", Choice::none, "", true, true},
      {R"(, "tools": [{"type": "web_search"}, {"function": {"name": "f"}}])", Choice::automatic, "f", true, true},
  };
  for (const ChoiceCase& one : cases) {
    const auto request = chat_request(kHi + one.fields);
    ASSERT_TRUE(request) << one.fields << request.error().to_string();
    EXPECT_EQ(request->tool_use.choice, one.choice) << one.fields;
    EXPECT_EQ(request->tool_use.parallel, one.parallel) << one.fields;
    std::string names;
    for (const Tool& tool : request->tool_use.tools) names += tool.name;
    EXPECT_EQ(names, one.names) << one.fields;
    EXPECT_EQ(request->chat.tools.is_array(), one.is_shown) << one.fields;
  }
  const auto request = chat_request(kHi + R"(, "tools": [{"type": "mcp"}, {"function": {"name": "f", "strict": true,
      "parameters": {"type": "object"}}}, {"type": "web_search"}])");
  ASSERT_TRUE(request);
  EXPECT_EQ(request->ignored, (std::vector<std::string>{"tools[0]:mcp", "tools[2]:web_search"}));
  ASSERT_EQ(request->chat.tools.as_array().size(), 1U) << "templates see only functions";
  EXPECT_EQ(request->chat.tools.as_array()[0].at("function").at("name"), "f");
  ASSERT_EQ(request->tool_use.tools.size(), 1U);
  EXPECT_EQ(request->tool_use.tools[0].index, 1U) << "the index is the position in the body";
  EXPECT_TRUE(request->tool_use.tools[0].strict);
  EXPECT_EQ(request->tool_use.tools[0].parameters.at("type"), "object");
}

TEST(FormErrors, NameTheFieldTheProblemAndTheFix) {
  const BodyCase cases[] = {
      {R"("response_format": "json")", R"(response_format: must be an object, not string "json")"},
      {R"("response_format": {"type": "xml"})", R"(response_format.type: is "xml"; send text, json_object, json_schema or structural_tag)"},
      {R"("response_format": {"type": "json_schema"})", R"(response_format.json_schema: is missing; send {"name": ..., "schema": {...}})"},
      {R"("response_format": {"type": "json_schema", "json_schema": 3})",
       R"(response_format.json_schema: is missing; send {"name": ..., "schema": {...}})"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"schema": 3}})",
       "response_format.json_schema.schema: must be an object, not integer 3"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"shema": {}}})",
       "response_format.json_schema.shema: is not a field of this request; did you mean 'schema'?"},
      {R"("response_format": {"type": "json_object", "schema": 3})", "response_format.schema: must be an object, not integer 3"},
      {R"("response_format": {"type": "json_object"}, "guided_regex": "a")",
       "guided_regex: cannot be combined with response_format; send only one of them"},
      {R"("structured_outputs": 3)", "structured_outputs: must be an object, not integer 3"},
      {R"("structured_outputs": {"json": {}, "regex": "a"})",
       "structured_outputs.regex: cannot be combined with structured_outputs.json; send only one of them"},
      {R"("structured_outputs": {"json": {}}, "guided_choice": ["a"])",
       "guided_choice: cannot be combined with structured_outputs.json; send only one of them"},
      {R"("response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"})",
       "structured_outputs: cannot be combined with response_format; send only one of them"},
      {R"("structured_outputs": {"choice": []})", "structured_outputs.choice: must be an array of 1 to 10000 strings, not array"},
      {R"("structured_outputs": {"choice": [1]})", "structured_outputs.choice: contains integer 1; send strings"},
      {R"("structured_outputs": {"disable_additional_properties": true})",
       R"(structured_outputs.disable_additional_properties: is not supported by this server, except as false; write )"
       R"("additionalProperties": false in the schema)"},
      {R"("guided_choice": 3)", "guided_choice: must be an array of 1 to 10000 strings, not integer 3"},
      {R"("guided_choice": )" + list_of(10'001, "\"a\""), "guided_choice: must be an array of 1 to 10000 strings, not array"},
      {R"("guided_choice": )" + list_of(10'000, "\"a\""), "accepted"},
      {R"("guided_json": 3)", "guided_json: must be a JSON schema, not integer 3"},
      {R"("guided_json": true)", "accepted"},
      {R"("guided_grammar": "root ::= (")", "guided_grammar: line 1: a bracket is not closed; fix the grammar"},
      {R"("format": "xml")", R"(format: is string "xml"; send "json" or a JSON schema)"},
      {R"("structured_outputs": {"structural_tag": "{"})", "structured_outputs.structural_tag: is not valid JSON: incomplete JSON"},
      {R"("structured_outputs": {"structural_tag": 3})",
       R"(structured_outputs.structural_tag: must be an object, not integer 3; send {"structures": [...], "triggers": [...]})"},
      {R"("structured_outputs": {"structural_tag": {"format": {}}})",
       R"(structured_outputs.structural_tag.format: is not supported; send {"structures": [...], "triggers": [...]})"},
      {R"("structured_outputs": {"structural_tag": {"structures": []}})",
       "structured_outputs.structural_tag.triggers: must be an array of strings"},
      {R"("structured_outputs": {"structural_tag": {"triggers": []}})",
       "structured_outputs.structural_tag.structures: must be an array of 1 to 1000 structures"},
      {R"("structured_outputs": {"structural_tag": {"triggers": ["<"], "structures": )" +
           list_of(1001, R"({"begin": "<", "schema": {}, "end": ""})") + "}}",
       "structured_outputs.structural_tag.structures: must be an array of 1 to 1000 structures"},
      {R"("structured_outputs": {"structural_tag": {"triggers": ["<"], "structures": )" +
           list_of(1000, R"({"begin": "<", "schema": true, "end": ""})") + "}}",
       "accepted"},
      {R"("structured_outputs": {"structural_tag": {"triggers": [], "structures": [3]}})",
       R"(structured_outputs.structural_tag.structures[0]: must be an object, not integer 3; send {"begin", "schema", "end"})"},
      {R"("structured_outputs": {"structural_tag": {"triggers": [], "structures": [{"begin": 3}]}})",
       "structured_outputs.structural_tag.structures[0].begin: must be a string"},
      {R"("structured_outputs": {"structural_tag": {"triggers": [], "structures": [{"begin": "a"}]}})",
       "structured_outputs.structural_tag.structures[0].end: must be a string"},
      {R"("structured_outputs": {"structural_tag": {"triggers": [], "structures": [{"begin": "a", "end": "", "schema": 3}]}})",
       "structured_outputs.structural_tag.structures[0].schema: must be a JSON schema"},
      {R"("structured_outputs": {"structural_tag": {"triggers": ["", 3, "b"], "structures": [{"begin": "a", "end": "", "schema": {}}]}})",
       "structured_outputs.structural_tag.structures[0].begin: does not begin with any of the triggers; add its beginning to triggers"},
  };
  for (const BodyCase& one : cases) EXPECT_EQ(error_of(text_request(kPrompt + ", " + one.fields)), one.error) << one.fields.substr(0, 200);
}

TEST(TransferErrors, NameTheFieldTheProblemAndTheFix) {
  const std::string fix = "; send the kv_transfer_params from the producer's answer";
  const BodyCase cases[] = {
      {"[]", R"(kv_transfer_params: must be an object, not array; send {"hidden_states": true}, or remove it)"},
      {R"({"do_remote_prefill": true, "remote_block_ids": 3})", "kv_transfer_params.remote_block_ids: must be a list, not integer 3" + fix},
      {R"({"do_remote_prefill": true, "remote_block_ids": [-1]})",
       "kv_transfer_params.remote_block_ids: must contain only block numbers" + fix},
      {R"({"do_remote_prefill": true, "remote_block_ids": [[1], 2]})",
       "kv_transfer_params.remote_block_ids: must contain only lists of block numbers" + fix},
      {R"({"do_remote_prefill": true, "tp_size": 2})", "kv_transfer_params.tp_size: is 2; use 1 to 1"},
      {R"({"do_remote_prefill": true, "tp_size": 0})", "kv_transfer_params.tp_size: is 0; use 1 to 1"},
      {R"({"do_remote_prefill": true, "remote_port": 65536})", "kv_transfer_params.remote_port: is 65536; use 0 to 65535"},
      {R"({"do_remote_prefill": true, "remote_port": 65535})", "accepted"},
      {R"({"do_remote_prefill": true, "remote_block_ids": [[4294967296]]})",
       "kv_transfer_params.remote_block_ids: must contain only lists of block numbers" + fix},
  };
  for (const BodyCase& one : cases)
    EXPECT_EQ(error_of(text_request(kPrompt + R"(, "kv_transfer_params": )" + one.fields)), one.error) << one.fields;
  EXPECT_EQ(error_of(text_request(kPrompt + R"(, "stream": true, "kv_transfer_params": {"do_remote_decode": true})")),
            "kv_transfer_params: requests do_remote_decode, which is not supported with stream; do not stream");
  EXPECT_EQ(error_of(text_request(R"("prompt": ["a", "b"], "kv_transfer_params": {"do_remote_prefill": true})")),
            "kv_transfer_params: requires one prompt and no hidden states; send a separate request for each");
  EXPECT_EQ(error_of(text_request(kPrompt + R"(, "kv_transfer_params": {"do_remote_prefill": true, "hidden_states": true})")),
            "kv_transfer_params: requires one prompt and no hidden states; send a separate request for each");
}

TEST(TransferBlocks, IncludeTheFirstAndTheLastNumber) {
  for (const char* ids : {"[0, 4294967295]", "[[0, 4294967295]]"}) {
    const auto request = text_request(kPrompt + R"(, "kv_transfer_params": {"do_remote_prefill": true, "remote_block_ids": )" + ids + "}");
    ASSERT_TRUE(request) << request.error().to_string();
    EXPECT_EQ(request->kv_transfer->remote_block_ids, (std::vector<std::vector<std::uint32_t>>{{0, 4294967295U}}));
    EXPECT_EQ(request->kv_transfer->remote_port, 0U);
    EXPECT_EQ(request->kv_transfer->tp_size, 1U);
    EXPECT_TRUE(request->kv_transfer->do_remote_prefill);
    EXPECT_FALSE(request->kv_transfer->do_remote_decode);
  }
  const auto groups = text_request(kPrompt + R"(, "kv_transfer_params": {"do_remote_prefill": true, "remote_block_ids": [[1], [2, 3]]})");
  EXPECT_EQ(groups->kv_transfer->remote_block_ids, (std::vector<std::vector<std::uint32_t>>{{1}, {2, 3}}));
  EXPECT_TRUE(text_request(kPrompt + R"(, "kv_transfer_params": {"do_remote_prefill": true, "remote_block_ids": []})")
                  ->kv_transfer->remote_block_ids.empty());
}

TEST(CompletionRanges, IncludeTheirEnds) {
  for (const std::string& fields : {R"("stop": )" + quoted(1024),
                                    R"("stop": )" + list_of(16, "\"a\""),
                                    R"("bad_words": [)" + quoted(1024) + "]",
                                    R"("bad_words": )" + list_of(1000, "\"a\""),
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
    EXPECT_EQ(error_of(text_request(kPrompt + ", " + fields)), "accepted") << fields.substr(0, 100);
  }
  EXPECT_TRUE(text_request(R"("prompt": )" + list_of(8, "\"a\"")));
  EXPECT_EQ(text_request(R"("prompt": [0, 99])")->prompts, std::vector<Prompt>{(std::vector<TokenId>{0, 99})});
  EXPECT_EQ(text_request(kPrompt + R"(, "top_k": -1)")->sampling.top_k, 0) << "-1 turns it off";
  EXPECT_EQ(text_request(kPrompt + R"(, "top_k": 16.0)")->sampling.top_k, 16);
  EXPECT_EQ(text_request(kPrompt + R"(, "truncate_prompt_tokens": -1)")->truncate_to, -1);
  EXPECT_EQ(text_request(kPrompt + R"(, "seed": -1)")->sampling.seed, ~std::uint64_t{0});
  EXPECT_EQ(text_request(kPrompt + R"(, "use_beam_search": true, "length_penalty": 0.5)")->beam_search->length_penalty, 0.5);
  EXPECT_EQ(text_request(kPrompt + R"(, "use_beam_search": true)")->beam_search->length_penalty, 1.0);
  EXPECT_EQ(text_request(kPrompt + R"(, "stop": "a")")->stop, std::vector<std::string>{"a"});
  EXPECT_EQ(text_request(kPrompt + R"(, "bad_words": ["a", "b"])")->bad_words, (std::vector<std::string>{"a", "b"}));
}

TEST(CompletionFields, SetTheMembersThatTheyName) {
  const auto request =
      text_request(kPrompt + R"(, "stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true},
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
  const auto plain = text_request(kPrompt);
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
  EXPECT_EQ(text_request(kPrompt + R"(, "suffix": "end")")->suffix, "end");
  EXPECT_FALSE(text_request(kPrompt + R"(, "suffix": "")")->suffix);
  EXPECT_TRUE(text_request(kPrompt + R"(, "is_last_step": true, "prompt_cache_key": "key")")) << "the key names the job";
  const auto chat = chat_request(kHi + R"(, "include_reasoning": false, "reasoning_effort": "none", "add_generation_prompt": false,
      "continue_final_message": true)");
  ASSERT_TRUE(chat) << chat.error().to_string();
  EXPECT_FALSE(chat->includes_reasoning);
  EXPECT_TRUE(chat->chat.continue_final_message);
  EXPECT_FALSE(chat->chat.add_generation_prompt);
  EXPECT_EQ(chat->chat.template_kwargs.at("reasoning_effort"), "none");
  EXPECT_EQ(chat->chat.template_kwargs.at("enable_thinking"), false);
  EXPECT_FALSE(chat_request(kHi + R"(, "reasoning_effort": "low")")->chat.template_kwargs.contains("enable_thinking"));
  EXPECT_TRUE(chat_request(kHi)->includes_reasoning);
  EXPECT_EQ(chat_request(kHi)->sampling.max_tokens, 2147483647U) << "as many as fit";
}

TEST(ThinkingFields, TurnReasoningOnOffOrLeaveItToTheModel) {
  const auto shown = [](const std::string& fields) {
    const auto request = chat_request(kHi + ", " + fields);
    EXPECT_TRUE(request) << request.error().to_string();
    const boost::json::value* is_on = request->chat.template_kwargs.if_contains("enable_thinking");
    return is_on == nullptr ? std::string("default") : boost::json::serialize(*is_on);
  };
  EXPECT_EQ(shown(R"("thinking": true)"), "true");
  EXPECT_EQ(shown(R"("thinking": {"type": "enabled", "budget_tokens": 5})"), "true");
  EXPECT_EQ(shown(R"("thinking": {"type": "disabled"})"), "false");
  EXPECT_EQ(shown(R"("thinking": {"type": "adaptive"})"), "default");
  EXPECT_EQ(shown(R"("thinking": {"type": "auto"})"), "default");
  EXPECT_EQ(shown(R"("thinking": {})"), "default");
  EXPECT_EQ(shown(R"("reasoning": {"enabled": true})"), "true");
  EXPECT_EQ(shown(R"("reasoning": {"exclude": false})"), "default");
  EXPECT_EQ(shown(R"("think": true)"), "true");
  EXPECT_EQ(shown(R"("enable_thinking": true, "think": false)"), "true") << "the first of the names counts";
  EXPECT_EQ(
      chat_request(kHi + R"(, "reasoning": {"effort": "low"}, "reasoning_effort": "high")")->chat.template_kwargs.at("reasoning_effort"),
      "high");
  EXPECT_TRUE(chat_request(kHi + R"(, "reasoning": {"exclude": false})")->includes_reasoning);
  EXPECT_EQ(chat_request(kHi + R"(, "reasoning": {"summary": "auto", "generate_summary": "x"})")->ignored,
            (std::vector<std::string>{"reasoning.summary", "reasoning.generate_summary"}));
}

TEST(ChatMessages, BecomeWhatTemplatesExpect) {
  const auto messages = [](const std::string& list) {
    auto request = chat_request(R"("messages": )" + list);
    EXPECT_TRUE(request) << list << request.error().to_string();
    return boost::json::serialize(request->chat.messages);
  };
  EXPECT_EQ(messages(R"([{"role": "assistant", "reasoning": "r", "content": null}])"),
            R"([{"role":"assistant","reasoning":null,"content":"","reasoning_content":"r"}])");
  EXPECT_EQ(messages(R"([{"role": "assistant", "reasoning": "r", "reasoning_content": "c", "content": "a"}])"),
            R"([{"role":"assistant","reasoning":"r","reasoning_content":"c","content":"a"}])");
  EXPECT_EQ(messages(R"([{"role": "assistant", "tool_calls": [], "content": "a", "name": null}])"),
            R"([{"role":"assistant","content":"a"}])");
  EXPECT_EQ(messages(R"([{"role": "user", "content": []}])"), R"([{"role":"user","content":""}])");
  const auto arguments = [&](const std::string& text) {
    const auto request =
        chat_request(R"("messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": )" + text + "}}]}]");
    EXPECT_TRUE(request) << text;
    return boost::json::serialize(request->chat.messages[0].at("tool_calls").as_array()[0].at("function").at("arguments"));
  };
  EXPECT_EQ(arguments(R"("{\"a\": 1}")"), R"({"a":1})");
  EXPECT_EQ(arguments(R"({"a": 1})"), R"({"a":1})");
  EXPECT_EQ(arguments(R"("")"), "{}");
  EXPECT_EQ(arguments("null"), "{}");
  EXPECT_EQ(arguments(R"("ls -l")"), R"({"raw_arguments":"ls -l"})");
  EXPECT_EQ(arguments(R"("{\"a\": \"b")"), R"({"a":"b"})") << "an answer that was cut off";
  const auto tool_result = [](const std::string& call, const std::string& result) {
    return error_of(chat_request(R"("messages": [{"role": "assistant", "tool_calls": [{)" + call +
                                 R"("function": {"name": "f"}}]}, {"role": "tool", )" + result + R"("content": "a"}])"));
  };
  EXPECT_EQ(tool_result(R"("id": "1", )", R"("tool_call_id": "1", )"), "accepted");
  EXPECT_EQ(tool_result(R"("id": "1", )", ""), "accepted") << "ids are optional";
  EXPECT_EQ(tool_result("", R"("tool_call_id": "1", )"), "accepted");
  EXPECT_TRUE(tool_result(R"("id": "1", )", R"("tool_call_id": "2", )").starts_with("messages[1].tool_call_id: string \"2\" is not"));
}

TEST(ObjectReader, ShowsShortValuesAndNamesTheKindOfLongOnes) {
  EXPECT_EQ(describe(nullptr), "null null");
  EXPECT_EQ(describe(true), "boolean true");
  EXPECT_EQ(describe(-7), "integer -7");
  EXPECT_EQ(describe(std::uint64_t{18446744073709551615U}), "integer 18446744073709551615");
  EXPECT_EQ(describe(0.5), "number 5E-1");
  EXPECT_EQ(describe(boost::json::array{1}), "array");
  EXPECT_EQ(describe(boost::json::object{}), "object");
  EXPECT_EQ(describe(boost::json::value(std::string(58, 'x'))), "string " + quoted(58));
  EXPECT_EQ(describe(boost::json::value(std::string(59, 'x'))), "string");
}

TEST(ObjectReader, AcceptsSixtyFourLevels) {
  const auto nested = [](std::size_t levels) { return R"({"a": )" + std::string(levels, '[') + std::string(levels, ']') + "}"; };
  EXPECT_TRUE(parse_object(nested(63)));
  const auto deep = parse_object(nested(64));
  ASSERT_FALSE(deep);
  EXPECT_EQ(deep.error().to_string(), "the body is nested more than 64 levels deep; send JSON with fewer levels");
  EXPECT_EQ(parse_object("[]").error().to_string(), "the body is a JSON array; send a JSON object");
  EXPECT_EQ(parse_object("3").error().to_string(), "the body is a JSON integer; send a JSON object");
  EXPECT_EQ(parse_object("{} x").error().to_string(), "the body is not JSON: extra data at byte 3; send a JSON object in UTF-8");
  EXPECT_TRUE(parse_object("{} \t\r\n")) << "white space may follow";
  EXPECT_EQ(parse_object(R"({"a": [1e999]})").error().to_string(),
            "a: is or contains a number outside the range of 64-bit floats; send numbers up to 1.7e308");
  EXPECT_EQ(parse_object(R"({")" + std::string(101, 'a') + R"(": 1e999})").error().field, std::string(100, 'a'));
}

TEST(ObjectReader, CutsLongNamesAndReplacesCharactersThatHeadersCannotContain) {
  const auto request = chat_request(kHi + R"(, ")" + std::string(101, 'q') + R"(": 1, "Q !~\u007f,Q\u00e9": 2)");
  ASSERT_TRUE(request) << request.error().to_string();
  EXPECT_EQ(request->ignored, (std::vector<std::string>{std::string(100, 'q'), "Q?!~??Q??"}));
  const auto unknown = text_request(kPrompt + R"(, "repetition_detection": {")" + std::string(101, 'q') + R"(": 1})");
  EXPECT_EQ(unknown.error().field, "repetition_detection." + std::string(100, 'q'));
}

TEST(MisspeltField, ComparesWordsWithoutCaseAndSeparators) {
  const std::string_view known[] = {"zip_code_az", "a_bc", "abcd_"};
  EXPECT_EQ(misspelt_field("ZIP-CODE-AZ", known), "zip_code_az");
  EXPECT_EQ(misspelt_field("zipCodeAz", known), "zip_code_az");
  EXPECT_EQ(misspelt_field("abc", known), "") << "three letters are too few";
  EXPECT_EQ(misspelt_field("ABCD", known), "abcd_");
  EXPECT_EQ(misspelt_field("abcd_", known), "") << "it is the field itself";
}

TEST(MisspeltField, AllowsOneWrongLetterOrTwoInLongNames) {
  const std::string_view known[] = {"letter", "lettuce", "long_field", "medium_on", "short"};
  const std::pair<const char*, const char*> cases[] = {
      {"lettex", "letter"},
      {"etter", ""},
      {"lletter", "letter"},
      {"lettr", ""},
      {"lettar", "letter"},
      {"lxttxr", ""},
      {"lettuc", "lettuce"},
      {"lettuces", "lettuce"},
      {"long_fixxd", "long_field"},
      {"long_xxxld", ""},
      {"xlong_fieldx", "long_field"},
      {"ng_field", ""},
      {"medium_xn", "medium_on"},
      {"medium_xx", ""},
      {"shorx", ""},
      {"shortx", ""},
  };
  for (const auto& [name, field] : cases) EXPECT_EQ(misspelt_field(name, known), field) << name;
  EXPECT_EQ(misspelt_field("shorx", known, 5), "short");
  const std::string_view near[] = {"aabbccddxx", "aabbccddex", "aabbccddey"};
  EXPECT_EQ(misspelt_field("aabbccddee", near), "aabbccddex") << "the fewest wrong letters, and the first of equal ones";
  const std::string forty(39, 'a');
  const std::string_view longest[] = {forty};
  EXPECT_EQ(misspelt_field(forty + "a", longest), forty);
  const std::string_view longer[] = {std::string_view("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")};
  EXPECT_EQ(misspelt_field(std::string(41, 'a'), longer), "") << "names of more than 40 bytes are not compared";
}

TEST(RequestAliases, TakeTheValueOfTheirField) {
  boost::json::object body{{"max_new_tokens", 5}, {"n_predict", -1}, {"random_seed", 9}, {"seed", 9.0}};
  const auto taken = apply_aliases(body, FieldApi::completion);
  ASSERT_TRUE(taken) << taken.error().to_string();
  EXPECT_EQ(taken->size(), 2U);
  EXPECT_EQ(body.at("max_tokens"), 5);
  EXPECT_TRUE(same_value(body.at("seed"), 9));
  for (const char* gone : {"max_new_tokens", "n_predict", "random_seed"}) EXPECT_FALSE(body.contains(gone)) << gone;
  EXPECT_EQ(with_alias_name(*taken, {ErrorCode::invalid_argument, "max_tokens", "a", "b"}).field, "max_new_tokens");
  EXPECT_EQ(with_alias_name(*taken, {ErrorCode::invalid_argument, "stop", "a", "b"}).field, "stop");
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
  RequestLimits limits = kLimits;
  limits.defaults.max_tokens = 30;
  EXPECT_EQ(parse_completion_request(Api::chat, "{" + kHi + "}", limits)->default_max_tokens, 30U);
  limits.defaults.max_limit = 20;
  EXPECT_EQ(parse_completion_request(Api::chat, "{" + kHi + "}", limits)->default_max_tokens, 20U);
  EXPECT_EQ(parse_completion_request(Api::chat, "{" + kHi + R"(, "max_tokens": 21})", limits)->max_tokens, 20U);
  EXPECT_EQ(parse_completion_request(Api::chat, "{" + kHi + R"(, "max_tokens": 19})", limits)->max_tokens, 19U);
  limits.defaults.max_tokens.reset();
  EXPECT_EQ(parse_completion_request(Api::chat, "{" + kHi + "}", limits)->default_max_tokens, 20U);
  EXPECT_FALSE(parse_completion_request(Api::chat, "{" + kHi + "}", kLimits)->default_max_tokens);
}

TEST(ExpertFields, AreReadWhereTheServerReturnsThem) {
  RequestLimits limits = kLimits;
  limits.routed_experts = true;
  const auto asks = [&](const std::string& fields) {
    return parse_completion_request(Api::completion, "{" + kPrompt + fields + "}", limits);
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
    EXPECT_EQ(error_of(asks(std::string(R"(, "return_routed_experts": true, )") + fields)),
              std::string("return_routed_experts: is not supported with ") + name + "; leave one of them out");
}

}  // namespace
}  // namespace quire::body_errors_test
