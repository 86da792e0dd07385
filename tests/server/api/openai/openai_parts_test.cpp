// Tests what OpenAI's routes write byte by byte, and the errors of their small bodies.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/base64.h"
#include "server/answers/chat_answer.h"
#include "server/answers/token_logprobs.h"
#include "server/api/openai/answer_json.h"
#include "server/api/openai/chat_fields.h"
#include "server/api/openai/openai_shape.h"
#include "server/api/openai/routed_experts_json.h"
#include "server/api/openai/small_requests.h"
#include "server/api/openai/tokenize.h"
#include "server/played_router.h"
#include "server/running_server.h"

namespace quire::openai_parts_test {
namespace {

namespace json = boost::json;
using Kind = AnswerPart::Kind;

class OpenAiText : public ::testing::Test {
 protected:
  AnswerHead head(Api api) { return {api, api == Api::chat ? "chatcmpl-a-1" : "cmpl-a-1", "m", 5}; }
  std::string whole(Api api, const std::vector<ChoiceText>& choices, const Usage& usage = {}, std::string_view more = {}) {
    return openai_answer(head(api), *tokenizer_, choices, usage, more);
  }
  // Returns the stream that a writer makes of one part of a choice.
  std::string event(Api api, const ChoiceText& choice, const OpenAiWriterOptions& options = {}, const Usage& usage = {}) {
    OpenAiWriter writer(head(api), *tokenizer_, options);
    std::string events;
    writer.begin_choice(events, choice.index, usage);
    events.clear();
    has_written_ = writer.write_choice(events, choice, usage);
    return events;
  }
  std::unique_ptr<const Tokenizer> tokenizer_ = Tokenizer::create(*byte_model().tokenizer).value();
  bool has_written_ = false;
};

TEST_F(OpenAiText, WholeAnswersHaveAllFields) {
  EXPECT_EQ(json::parse(whole(Api::completion, {{.index = 0, .text = "hi", .finish = FinishReason::stop, .cause = {}}}, {7, 3, 2, 0})),
            json::parse(R"({"id":"cmpl-a-1","object":"text_completion","created":5,"model":"m","choices":[{"index":0,"text":"hi",
      "logprobs":null,"finish_reason":"stop","stop_reason":null}],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10,
      "prompt_tokens_details":{"cached_tokens":2}}})"));
  EXPECT_EQ(json::parse(whole(Api::chat, {{.index = 1, .text = "hi", .finish = FinishReason::length, .cause = {.text = "x", .token = 3}}},
                              {7, 3, 2, 1}, R"("more":1)")),
            json::parse(R"({"id":"chatcmpl-a-1","object":"chat.completion","created":5,"model":"m","choices":[{"index":1,
      "message":{"role":"assistant","content":"hi","refusal":null},"logprobs":null,"finish_reason":"length","stop_reason":"x"}],
      "usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10,"prompt_tokens_details":{"cached_tokens":2},
      "completion_tokens_details":{"reasoning_tokens":1}},"more":1})"));
}

TEST_F(OpenAiText, FinishReasonIsToolCallsWhenAllAreComplete) {
  const auto finish = [&](std::optional<FinishReason> reason, bool calls_tools, StopCause cause = {}) {
    const json::value all =
        json::parse(whole(Api::completion, {{.text = "", .finish = reason, .calls_tools = calls_tools, .cause = std::move(cause)}}));
    const json::value& choice = all.at("choices").as_array()[0];
    return json::serialize(choice.at("finish_reason")) + json::serialize(choice.at("stop_reason"));
  };
  EXPECT_EQ(finish(FinishReason::stop, true), R"("tool_calls"null)");
  EXPECT_EQ(finish(FinishReason::length, true), R"("length"null)");
  EXPECT_EQ(finish(FinishReason::stop, false, {.text = {}, .token = 7}), R"("stop"7)");
  EXPECT_EQ(finish(FinishReason::abort, false), R"("abort"null)");
  EXPECT_EQ(finish({}, true), "nullnull");
}

TEST_F(OpenAiText, CompletionLogprobsAreListsOfEqualLength) {
  const std::vector<PositionLogprobs> sampled = {{{{'b', -0.5F, 1}, {'c', -1.5F, 2}}}, {{}}, {{{0xC3, -0.25F, 1}, {0xC3, -0.25F, 1}}}};
  const std::vector<PositionLogprobs> prompt = {{{{'x', -2.0F, 4}, {'y', -1.0F, 1}, {'z', -3.0F, 3}}}};
  ChoiceText choice{.text = "b", .logprobs = &sampled, .text_offset = 3, .finish = FinishReason::stop, .cause = {}};
  const auto lists = [&] {
    const json::value all = json::parse(whole(Api::completion, {choice}));
    return json::serialize(all.at("choices").as_array()[0].at("logprobs"));
  };
  EXPECT_EQ(json::parse(lists()), json::parse(R"({"tokens":["b","\ufffd"],"token_logprobs":[-0.5,-0.25],
      "top_logprobs":[{"b":-0.5,"c":-1.5},{"\ufffd":-0.25}],"text_offset":[3,4]})"));
  choice.tokens_as_ids = true;
  EXPECT_EQ(json::parse(lists()).at("tokens"), json::parse(R"(["token_id:98","token_id:195"])"));
  choice.tokens_as_ids = false;
  choice.text_offset = 0;
  choice.prompt = &prompt;
  choice.echoed = 'w';
  choice.num_echoed_logprobs = 1;
  EXPECT_EQ(json::parse(lists()), json::parse(R"({"tokens":["w","x","b","\ufffd"],"token_logprobs":[null,-2,-0.5,-0.25],
      "top_logprobs":[null,{"x":-2,"y":-1},{"b":-0.5,"c":-1.5},{"\ufffd":-0.25}],"text_offset":[0,1,2,3]})"));
  choice.num_echoed_logprobs = 9;
  EXPECT_EQ(json::parse(lists()).at("top_logprobs").as_array()[1], json::parse(R"({"x":-2,"y":-1,"z":-3})"));
}

TEST_F(OpenAiText, ChatLogprobsHaveTheBytesOfTheirTokens) {
  const std::vector<PositionLogprobs> sampled = {{{{'b', -0.5F, 1}, {0xC3, -1.5F, 2}}}, {{}}};
  const json::value all = json::parse(whole(Api::chat, {{.text = "b", .logprobs = &sampled, .finish = FinishReason::stop, .cause = {}}}));
  EXPECT_EQ(all.at("choices").as_array()[0].at("logprobs"), json::parse(R"({"content":[{"token":"b","logprob":-0.5,"bytes":[98],
      "top_logprobs":[{"token":"\ufffd","logprob":-1.5,"bytes":[195]}]}]})"));
}

TEST_F(OpenAiText, PromptLogprobsNameEachTokenOnce) {
  const std::vector<PositionLogprobs> prompt = {{{{'x', -2.0F, 4}, {'y', -1.0F, 1}, {'x', -2.0F, 4}}}};
  const json::value wanted = json::parse(R"([null,{"120":{"logprob":-2,"rank":4,"decoded_token":"x"},
      "121":{"logprob":-1,"rank":1,"decoded_token":"y"}}])");
  ChoiceText choice{.text = "b", .prompt = &prompt, .writes_prompt_logprobs = true, .finish = FinishReason::stop, .cause = {}};
  EXPECT_EQ(json::parse(whole(Api::completion, {choice})).at("choices").as_array()[0].at("prompt_logprobs"), wanted);
  const json::value chat = json::parse(whole(Api::chat, {choice, choice}));
  EXPECT_EQ(chat.at("prompt_logprobs"), wanted) << "a chat has them once";
  EXPECT_FALSE(chat.at("choices").as_array()[0].as_object().contains("prompt_logprobs"));
  choice.prompt = nullptr;
  EXPECT_TRUE(json::parse(whole(Api::completion, {choice})).at("choices").as_array()[0].at("prompt_logprobs").is_null());
  choice.writes_prompt_logprobs = false;
  EXPECT_FALSE(json::parse(whole(Api::chat, {choice})).as_object().contains("prompt_logprobs"));
}

TEST_F(OpenAiText, TokenIdsAreInTheChoiceAndTheirPromptAtTheTopOfAChat) {
  const std::vector<TokenId> tokens = {1, 2}, prompt = {3};
  const ChoiceText choice{.text = "b", .finish = FinishReason::stop, .token_ids = &tokens, .prompt_token_ids = &prompt, .cause = {}};
  const json::value text = json::parse(whole(Api::completion, {choice})).at("choices").as_array()[0];
  EXPECT_EQ(text.at("token_ids"), json::parse("[1,2]"));
  EXPECT_EQ(text.at("prompt_token_ids"), json::parse("[3]"));
  const json::value chat = json::parse(whole(Api::chat, {choice}));
  EXPECT_EQ(chat.at("prompt_token_ids"), json::parse("[3]"));
  EXPECT_FALSE(chat.at("choices").as_array()[0].as_object().contains("prompt_token_ids"));
  const auto chunk = [](const std::string& events) { return json::parse(events.substr(6)); };
  EXPECT_EQ(chunk(event(Api::chat, choice)).at("prompt_token_ids"), json::parse("[3]"));
  EXPECT_EQ(chunk(event(Api::completion, choice)).at("choices").as_array()[0].at("prompt_token_ids"), json::parse("[3]"));
}

TEST_F(OpenAiText, EventsHaveTheFieldsOfAChunk) {
  EXPECT_EQ(
      event(Api::completion, {.index = 2, .text = "a", .cause = {}}),
      "data: {\"id\":\"cmpl-a-1\",\"object\":\"text_completion\",\"created\":5,\"model\":\"m\",\"choices\":[{\"index\":2,\"text\":\"a\","
      "\"logprobs\":null,\"finish_reason\":null,\"stop_reason\":null}]}\n\n");
  EXPECT_TRUE(has_written_);
  EXPECT_EQ(event(Api::completion, {.text = "", .cause = {}}), "");
  EXPECT_FALSE(has_written_) << "log probabilities wait for their text";
  const auto delta = [&](const ChoiceText& choice) {
    const std::string events = event(Api::chat, choice);
    return events.empty() ? "none" : json::serialize(json::parse(events.substr(6)).at("choices").as_array()[0].at("delta"));
  };
  EXPECT_EQ(delta({.text = "a", .cause = {}}), R"({"content":"a"})");
  EXPECT_EQ(delta({.text = "a", .finish = FinishReason::stop, .cause = {}}), R"({"content":"a"})");
  EXPECT_EQ(delta({.text = "", .finish = FinishReason::stop, .cause = {}}), "{}");
  const auto usage_of = [&](const OpenAiWriterOptions& options) {
    const json::value chunk = json::parse(event(Api::completion, {.text = "a", .cause = {}}, options, {7, 3, 2, 0}).substr(6));
    return chunk.as_object().contains("usage") ? json::serialize(chunk.at("usage")) : "none";
  };
  EXPECT_EQ(usage_of({}), "none");
  EXPECT_EQ(usage_of({.include_usage = true}), "null");
  EXPECT_TRUE(usage_of({.continuous_usage = true}).starts_with(R"({"prompt_tokens":7,)"));
  OpenAiWriter writer(head(Api::chat), *tokenizer_, {.include_usage = true});
  std::string events;
  writer.begin_choice(events, 3, {});
  EXPECT_EQ(json::parse(events.substr(6)).at("choices"),
            json::parse(R"([{"index":3,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}])"));
  const std::string once = events;
  writer.begin_choice(events, 3, {});
  EXPECT_EQ(events, once) << "a choice begins once";
  events.clear();
  writer.end_stream(events, {7, 3, 2, 0}, nullptr);
  EXPECT_TRUE(events.ends_with("\n\ndata: [DONE]\n\n"));
  EXPECT_EQ(json::parse(events.substr(6, events.find("\n\n") - 6)).at("choices"), json::array());
  OpenAiWriter text(head(Api::completion), *tokenizer_, {});
  events.clear();
  text.begin_choice(events, 0, {});
  EXPECT_EQ(events, "") << "a completion has no role";
  text.end_stream(events, {}, nullptr);
  EXPECT_EQ(events, "data: [DONE]\n\n");
}

TEST_F(OpenAiText, FirstDeltaHasTheLogprobs) {
  const std::vector<AnswerPart> parts = {{Kind::reasoning, 0, "r"}, {Kind::content, 0, "c"}};
  const std::vector<PositionLogprobs> sampled = {{{{'r', -0.5F, 1}}}};
  const std::vector<TokenId> prompt = {3};
  const std::string events = event(Api::chat, {.parts = &parts,
                                               .logprobs = &sampled,
                                               .finish = FinishReason::stop,
                                               .prompt_token_ids = &prompt,
                                               .cause = {.text = "x", .token = {}}});
  std::vector<json::value> chunks;
  for (std::size_t at = 0; at < events.size(); at = events.find("\n\n", at) + 2)
    chunks.push_back(json::parse(events.substr(at + 6, events.find("\n\n", at) - at - 6)));
  ASSERT_EQ(chunks.size(), 3U) << events;
  const auto choice = [&](std::size_t i) { return chunks[i].at("choices").as_array()[0]; };
  EXPECT_EQ(choice(0).at("delta"), json::parse(R"({"reasoning_content":"r"})"));
  EXPECT_EQ(choice(0).at("logprobs").at("content").as_array().size(), 1U);
  EXPECT_TRUE(choice(0).at("finish_reason").is_null());
  EXPECT_TRUE(choice(0).at("stop_reason").is_null());
  EXPECT_EQ(chunks[0].at("prompt_token_ids"), json::parse("[3]"));
  EXPECT_EQ(choice(1).at("delta"), json::parse(R"({"content":"c"})"));
  EXPECT_EQ(choice(1).at("logprobs").at("content").as_array().size(), 0U);
  EXPECT_FALSE(chunks[1].as_object().contains("prompt_token_ids"));
  EXPECT_EQ(choice(2).at("delta"), json::object());
  EXPECT_EQ(choice(2).at("finish_reason"), "stop");
  EXPECT_EQ(choice(2).at("stop_reason"), "x");
}

TEST(ChatFields, HaveContentReasoningAndCalls) {
  const std::vector<AnswerPart> call = {
      {Kind::call, 0, "f"}, {Kind::arguments, 0, "{"}, {Kind::arguments, 0, "}"}, {Kind::call_end, 0, ""}};
  const auto fields = [](const std::vector<AnswerPart>& parts) { return json::parse("{" + message_fields(parts, "call_") + "}"); };
  const std::string calls = R"("tool_calls":[{"id":"call_0","type":"function","function":{"name":"f","arguments":"{}"}}])";
  EXPECT_EQ(fields({}), json::parse(R"({"content":""})"));
  EXPECT_EQ(fields({{Kind::content, 0, "a"}, {Kind::content, 0, "b"}}), json::parse(R"({"content":"ab"})"));
  EXPECT_EQ(fields({{Kind::reasoning, 0, "a"}}), json::parse(R"({"content":null,"reasoning_content":"a"})"));
  EXPECT_EQ(fields({{Kind::reasoning, 0, "a"}, {Kind::content, 0, "b"}}), json::parse(R"({"content":"b","reasoning_content":"a"})"));
  EXPECT_EQ(fields(call), json::parse(R"({"content":null,)" + calls + "}"));
  std::vector<AnswerPart> both = call;
  both.push_back({Kind::content, 0, "b"});
  EXPECT_EQ(fields(both), json::parse(R"({"content":"b",)" + calls + "}"));
  EXPECT_EQ(delta_fields({Kind::call, 2, "f"}, "call_"),
            R"("tool_calls":[{"index":2,"id":"call_2","type":"function","function":{"name":"f","arguments":""}}])");
  EXPECT_EQ(delta_fields({Kind::arguments, 2, "{"}, "call_"), R"("tool_calls":[{"index":2,"function":{"arguments":"{"}}])");
  EXPECT_EQ(delta_fields({Kind::reasoning, 0, "r"}, "call_"), R"("reasoning_content":"r")");
  EXPECT_EQ(delta_fields({Kind::content, 0, "c"}, "call_"), R"("content":"c")");
  for (const Kind end : {Kind::call_end, Kind::call_broken, Kind::call_truncated}) EXPECT_EQ(delta_fields({end, 0, "x"}, "call_"), "");
  EXPECT_EQ(call_ids({Api::chat, "chatcmpl-mine-00ff", "m", 5}, 3), "call_00ff_3_");
}

TEST(RoutedExperts, AreANumpyArrayOfTheSmallestIntegers) {
  const std::vector<std::uint16_t> experts = {1, 255, 0, 7, 2, 3, 4, 5};
  const auto text = [&](std::uint32_t num_experts) {
    return routed_experts_text({.experts = experts, .shape = {.num_layers = 2, .per_layer = 2, .num_experts = num_experts}}).value();
  };
  const auto file = [](const std::string& type, const std::string& values) {
    std::string dict = "{'descr': '" + type + "', 'fortran_order': False, 'shape': (2, 2, 2), }";
    dict.resize(117, ' ');
    std::string all = std::string("\x93NUMPY\x01\0", 8);
    all += '\x76';
    all += '\0';
    all += dict + "\n" + values;
    return base64_of(std::as_bytes(std::span(all)));
  };
  EXPECT_EQ(text(256), file("|u1", std::string("\x01\xFF\x00\x07\x02\x03\x04\x05", 8)));
  EXPECT_EQ(text(257), file("<u2", std::string("\x01\0\xFF\0\0\0\x07\0\x02\0\x03\0\x04\0\x05\0", 16)));
  EXPECT_FALSE(routed_experts_text({}));
}

TEST(SmallBodies, NameTheInvalidFieldAndTheFix) {
  const auto fork = [](std::string_view body) {
    const auto call = parse_fork_call(body, 4);
    return call ? "accepted" : call.error().to_string();
  };
  EXPECT_EQ(fork(""), "accepted") << "an empty body has the defaults";
  EXPECT_EQ(fork(R"({"choice": -1})"), "choice: is -1; use 0 to 2147483647");
  EXPECT_EQ(fork(R"({"n": 0})"), "n: is 0; use 1 to 4");
  EXPECT_EQ(fork(R"({"n": 4})"), "accepted");
  EXPECT_EQ(fork(R"({"n": 5})"), "n: is 5; use 1 to 4");
  EXPECT_EQ(fork(R"({"max_tokens": 0})"), "max_tokens: is 0; use 1 to 2147483647");
  EXPECT_EQ(fork(R"({"sead": 1})"), "sead: is not a field of this request; did you mean 'seed'?");
  const auto call = parse_fork_call(R"({"choice": 1, "n": 2, "seed": -1, "max_tokens": 7, "stream": true})", 4);
  ASSERT_TRUE(call);
  EXPECT_EQ(call->choice, 1U);
  EXPECT_EQ(call->fork.n, 2U);
  EXPECT_EQ(call->fork.seed, ~std::uint64_t{0});
  EXPECT_EQ(call->fork.max_tokens, 7U);
  EXPECT_TRUE(call->stream);
  const auto plain = parse_fork_call("{}", 4);
  EXPECT_EQ(plain->choice, 0U);
  EXPECT_EQ(plain->fork.n, 1U);
  EXPECT_FALSE(plain->fork.seed);
  EXPECT_FALSE(plain->fork.max_tokens);
  EXPECT_FALSE(plain->stream);
  const auto input = [](std::string_view body) {
    const auto parsed = parse_input_call(body, 10);
    return parsed ? "accepted" : parsed.error().to_string();
  };
  EXPECT_EQ(input(""), R"(prompt: is missing; send text or token ids, or "end": true)");
  EXPECT_EQ(input(R"({"end": true})"), "accepted");
  EXPECT_EQ(input(R"({"end": false})"), R"(prompt: is missing; send text or token ids, or "end": true)");
  EXPECT_EQ(input(R"({"prompt": 3})"), "prompt: must be an array of token ids, not integer 3");
  EXPECT_EQ(input(R"({"prompt": [10]})"), "prompt: contains integer 10; use integers from 0 to 9");
  const auto given = parse_input_call(R"({"prompt": [9], "add_special_tokens": true, "end": true})", 10);
  EXPECT_EQ(std::get<std::vector<TokenId>>(*given->prompt), std::vector<TokenId>{9});
  EXPECT_TRUE(given->add_special_tokens);
  EXPECT_TRUE(given->is_last);
  EXPECT_FALSE(parse_input_call(R"({"prompt": "a"})", 10)->add_special_tokens);
  EXPECT_FALSE(parse_input_call(R"({"prompt": "a"})", 10)->is_last);
  EXPECT_EQ(parse_tokenize_request("{}").error().to_string(), "prompt: is missing; send a string, or messages");
  EXPECT_EQ(parse_tokenize_request(R"({"messages": [{"role": "user", "content": "a"}], "chat_template": "x"})").error().to_string(),
            "chat_template: is not supported by this server, except as null; start the server with --chat-template");
  EXPECT_EQ(parse_detokenize_request("{}", 10).error().to_string(), "tokens: is missing; send an array of token ids");
  EXPECT_TRUE(parse_tokenize_request(R"({"prompt": "a", "return_token_strs": true})")->return_token_strs);
  EXPECT_FALSE(parse_tokenize_request(R"({"prompt": "a"})")->return_token_strs);
  EXPECT_FALSE(parse_tokenize_request(R"({"prompt": "a", "add_special_tokens": false})")->add_special_tokens);
  EXPECT_TRUE(
      parse_tokenize_request(R"({"messages": [{"role": "user", "content": "a"}], "add_special_tokens": true})")->add_special_tokens);
  EXPECT_EQ(parse_tokenize_request(R"({"prompt": "a", "model": "m"})")->model, "m");
}

class OpenAiRoutes : public RunningServer {};

TEST_F(OpenAiRoutes, TokenizersAnswerWithTheirFields) {
  engine.set_max_model_len(4);
  start();
  EXPECT_EQ(post("/tokenize", R"({"prompt":"ab","return_token_strs":true})").body,
            R"({"count":2,"max_model_len":4,"tokens":[97,98],"token_strs":["a","b"]})");
  EXPECT_EQ(post("/tokenize", R"({"prompt":"ab"})").body, R"({"count":2,"max_model_len":4,"tokens":[97,98],"token_strs":null})");
  EXPECT_EQ(post("/detokenize", R"({"tokens":[97,98,256,99]})").body, R"({"prompt":"ab<|end|>c"})");
  EXPECT_EQ(post("/detokenize", R"({"tokens":[97,98,99,99,99]})").error_message(),
            "tokens: has 5 tokens, more than the maximum of 4; send them in parts");
  EXPECT_EQ(post("/detokenize", R"({"tokens":[97],"model":"x"})").error_param(), "model");
  EXPECT_EQ(post("/tokenize", R"({"prompt":"a","model":"x"})").error_param(), "model");
  const json::value info = HttpClient(port).get("/tokenizer_info").json();
  EXPECT_EQ(info.at("tokenizer_class"), "quire");
  EXPECT_EQ(info.at("vocab_size"), 257);
  EXPECT_EQ(info.at("model_max_length"), 4);
  EXPECT_TRUE(info.at("bos_token").is_null());
  EXPECT_EQ(info.at("eos_token"), "<|end|>");
  EXPECT_TRUE(info.at("chat_template").as_string().starts_with("{% for m in messages %}"));
}

TEST_F(OpenAiRoutes, ModelsHaveTheirAliasesAndAdapters) {
  engine.add_adapter({.name = "tuned", .path = "/tuned", .digest = ""});
  start({.served_model_aliases = {"alias"}});
  const json::value list = HttpClient(port).get("/v1/models").json();
  EXPECT_EQ(list.at("object"), "list");
  EXPECT_EQ(list.at("has_more"), false);
  EXPECT_EQ(list.at("first_id"), "bytes");
  EXPECT_EQ(list.at("last_id"), "tuned");
  const auto card = [&](std::size_t i) { return list.at("data").as_array().at(i); };
  ASSERT_EQ(list.at("data").as_array().size(), 3U);
  EXPECT_EQ(card(0).at("id"), "bytes");
  EXPECT_EQ(card(0).at("object"), "model");
  EXPECT_EQ(card(0).at("owned_by"), "quire");
  EXPECT_EQ(card(0).at("root"), "bytes");
  EXPECT_TRUE(card(0).at("parent").is_null());
  EXPECT_EQ(card(0).at("max_model_len"), 512);
  EXPECT_EQ(card(0).at("type"), "model");
  EXPECT_EQ(card(0).at("created_at").as_string().size(), std::string_view("2026-01-01T00:00:00Z").size());
  EXPECT_EQ(card(1).at("id"), "alias");
  EXPECT_EQ(card(1).at("display_name"), "alias");
  EXPECT_EQ(card(1).at("root"), "bytes");
  EXPECT_EQ(card(2).at("root"), "/tuned");
  EXPECT_EQ(card(2).at("parent"), "bytes");
  EXPECT_EQ(HttpClient(port).get("/v1/models/alias").json(), card(1));
  EXPECT_EQ(HttpClient(port).get("/v1/models/x").error_message(), "model: 'x' is not served by this server; see /v1/models");
  EXPECT_EQ(HttpClient(port).get("/v1/models/%zz").error_message(), "model: is not correctly percent-encoded; percent-encode it");
}

EngineProbe probe_with(std::uint32_t num_tokens, std::uint32_t num_local) {
  EngineProbe probe;
  probe.cache.num_tokens = num_tokens;
  probe.cache.num_local_tokens = num_local;
  return probe;
}

TEST_F(OpenAiRoutes, WarmingHasThePriorityTenantAndSaltOfTheRequest) {
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

TEST_F(OpenAiRoutes, ProbesReportTimesAndTiers) {
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

TEST_F(OpenAiRoutes, OneMissedBlockCountsAsCached) {
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

TEST_F(OpenAiRoutes, ForksAndInputsNameWhatIsWrong) {
  start();
  HttpClient session(port), beams(port);
  session.send_post("/v1/completions", R"({"prompt":"one","session":true,"stream":true,"max_tokens":9})", "X-Request-Id: s\r\n");
  ASSERT_TRUE(engine.wait_submitted(1));
  const auto fork = [&](const std::string& id, const std::string& body) {
    return post("/v1/requests/" + id + "/fork", body).error_message();
  };
  const auto give = [&](const std::string& id, const std::string& body) {
    return post("/v1/requests/" + id + "/input", body).error_message();
  };
  EXPECT_EQ(fork("cmpl-s", "{}"), "stream: must be true, because the fork of a session is a session; send \"stream\": true as well");
  EXPECT_EQ(fork("cmpl-s", R"({"stream":true,"n":2})"),
            "n: is 2, but the fork of a session has only one choice; send a separate fork request for each session");
  EXPECT_EQ(fork("cmpl-s", R"({"stream":true,"choice":1})"), "choice: is 1, but no such choice exists; use an index below 1");
  EXPECT_EQ(fork("cmpl-x", "{}"), "id: no answer 'cmpl-x' is in progress; use the id from the first event of a stream");
  EXPECT_EQ(give("cmpl-x", R"({"prompt":"a"})"), "id: no answer 'cmpl-x' is in progress; use the id from the first event of a stream");
  EXPECT_EQ(give("cmpl-s", R"({"prompt":""})"), R"(prompt: has no tokens; send some text, or only "end": true)");
  EXPECT_EQ(post("/v1/requests/cmpl-s/input", R"({"prompt":"ab","end":true})").body, R"({"id":"cmpl-s","num_tokens":2,"end":true})");
  ASSERT_TRUE(engine.wait_appended(0, 2));
  beams.send_post("/v1/completions", R"({"prompt":"one","use_beam_search":true,"n":2})", "X-Request-Id: b\r\n");
  ASSERT_TRUE(engine.wait_submitted(2));
  EXPECT_EQ(fork("cmpl-b", "{}"), "id: is a beam search, which cannot be forked; fork a request without use_beam_search");
  EXPECT_EQ(give("cmpl-b", R"({"prompt":"a"})"), R"(id: is not a session; start one with "session": true in /v1/completions)");
  EXPECT_EQ(post("/v1/requests/cmpl-s/fork", "{" + std::string(20'000, ' ') + "}").error_message(),
            "the body is too large, with 20002 bytes; send only choice, n, seed, max_tokens and stream");
}

TEST_F(OpenAiRoutes, ForksCannotExceedTheServersLimit) {
  ServerOptions options;
  options.generation_defaults.max_limit = 5;
  start(options);
  HttpClient parent(port), child(port), other(port);
  parent.send_post("/v1/completions", R"({"prompt":"one","stream":true})", "X-Request-Id: s\r\n");
  ASSERT_TRUE(engine.wait_submitted(1));
  child.send_post("/v1/requests/cmpl-s/fork", R"({"max_tokens":6,"stream":true})");
  ASSERT_TRUE(engine.wait_submitted(2));
  EXPECT_EQ(engine.at(1).request.sampling.max_tokens, 5U);
  other.send_post("/v1/requests/cmpl-s/fork", R"({"max_tokens":4,"stream":true})");
  ASSERT_TRUE(engine.wait_submitted(3));
  EXPECT_EQ(engine.at(2).request.sampling.max_tokens, 4U);
}

TEST_F(OpenAiRoutes, FailuresOfTheEngineAreReported) {
  start();
  const auto failed = [&](FinishReason reason, const std::string& error) {
    const std::size_t count = engine.num_submitted();
    HttpClient client(port);
    client.send_post("/v1/completions", R"({"prompt":"one"})");
    EXPECT_TRUE(engine.wait_submitted(count + 1));
    engine.end(RequestId{count}, reason, error);
    const ClientResponse response = client.receive();
    return std::to_string(response.status) + " " + (response.status == 200 ? "" : response.error_message());
  };
  EXPECT_EQ(failed(FinishReason::error, "it broke"), "500 it broke; try again");
  EXPECT_EQ(failed(FinishReason::error, ""), "500 the engine failed; try again");
  EXPECT_EQ(failed(FinishReason::abort, ""), "200 ");
  const auto pooled = [&](FinishReason reason, const std::string& error) {
    const std::size_t count = engine.num_submitted();
    HttpClient client(port);
    client.send_post("/v1/embeddings", R"({"input":"one"})");
    EXPECT_TRUE(engine.wait_submitted(count + 1));
    engine.end(RequestId{count}, reason, error);
    const ClientResponse response = client.receive();
    return std::to_string(response.status) + " " + response.error_message();
  };
  EXPECT_EQ(pooled(FinishReason::error, "it broke"), "500 it broke; try again");
  EXPECT_EQ(pooled(FinishReason::error, ""), "500 the engine failed; try again");
  EXPECT_EQ(pooled(FinishReason::abort, ""), "503 the engine aborted the request; send the request again");
}

TEST_F(OpenAiRoutes, DrainingServerRefusesWork) {
  start();
  HttpClient open(port);
  open.send_post("/v1/completions", R"({"prompt":"one","stream":true})", "X-Request-Id: s\r\n");
  ASSERT_TRUE(engine.wait_submitted(1));
  // A request whose body is arriving is still read while the server drains.
  std::vector<std::unique_ptr<HttpClient>> clients;
  const std::pair<std::string, std::string> calls[] = {
      {"/v1/completions", R"({"prompt":"a"})"}, {"/v1/embeddings", R"({"input":"a"})"}, {"/v1/requests/cmpl-s/fork", "{}"}};
  std::size_t num_bytes = 0;
  for (const auto& [path, body] : calls) {
    clients.push_back(std::make_unique<HttpClient>(port));
    const std::string text = HttpClient::post_text(path, body);
    clients.back()->send(text.substr(0, text.size() - 1));
    num_bytes += body.size() - 1;
  }
  const std::string held = "\nquire:body_bytes_in_flight{engine=\"0\",model_name=\"bytes\"} " + std::to_string(num_bytes) + "\n";
  bool is_held = false;
  for (int i = 0; i < 2000 && !is_held; ++i) {
    is_held = HttpClient(port).get("/metrics").body.contains(held);
    if (!is_held) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_TRUE(is_held);
  drain();
  for (const auto& client : clients) {
    client->send("}");
    const ClientResponse response = client->receive();
    EXPECT_EQ(response.status, 503U);
    EXPECT_TRUE(response.error_message().starts_with("the server is shutting down")) << response.body;
    EXPECT_EQ(response.json().at("error").at("code"), "shutting_down");
    EXPECT_EQ(response.header("Retry-After"), "1");
    EXPECT_EQ(response.header("Connection"), "close");
  }
}

class RoutedRequests : public PlayedRouter {
 protected:
  std::string early(const std::string& method, const std::string& target) {
    HttpRequest request;
    request.method = method;
    request.target = target;
    request.host = "localhost";
    request.over_loopback = request.is_local = true;
    const auto response = router_.answer_early(request);
    return response ? std::to_string(response->status) + " " + response->body : "passes";
  }
};

TEST_F(RoutedRequests, NameTheRoutesThatExist) {
  EXPECT_EQ(early("POST", "/v1/completions"), "passes");
  EXPECT_EQ(early("GET", "/health"), "passes");
  EXPECT_EQ(early("HEAD", "/health"), "passes");
  EXPECT_TRUE(early("GET", "/v1/completions").contains("'/v1/completions' does not support GET; use POST"))
      << early("GET", "/v1/completions");
  EXPECT_TRUE(early("PUT", "/v1/responses/x").contains("'/v1/responses/x' does not support PUT; use GET, DELETE"));
  EXPECT_TRUE(early("POST", "/completions")
                  .contains("there is no route '/completions' on this server; use /v1/completions; the base URL "
                            "ends with /v1"));
  EXPECT_TRUE(early("POST", "/v1/v1/completions").contains("use /v1/completions\""));
  EXPECT_TRUE(early("POST", "/v1/v1/x").contains("use one of /v1/completions, /v1/chat/completions"));
  EXPECT_TRUE(early("POST", "/" + std::string(300, 'x')).contains("'/" + std::string(199, 'x') + "'"));
  EXPECT_TRUE(early("POST", "/v1/messages/x").starts_with("404 {\"error\""));
  HttpResponse wrong{404, "application/json", R"({"error":{"message":"m"}})", {}};
  EXPECT_TRUE(router_.format_for_path("/v1/messages/x", wrong).body.starts_with(R"({"type":"error")"));
  EXPECT_EQ(router_.format_for_path("/v1/completions", wrong).body, wrong.body);
  HttpResponse fine{200, "application/json", R"({"error":{"message":"m"}})", {}};
  EXPECT_EQ(router_.format_for_path("/v1/messages", fine).body, fine.body);
}

TEST_F(RoutedRequests, OperatorsAreNotTheModelsClients) {
  const auto is_operator = [&](const std::string& method, const std::string& target) {
    HttpRequest request;
    request.method = method;
    request.target = target;
    return router_.is_operator_request(request);
  };
  EXPECT_TRUE(is_operator("GET", "/health"));
  EXPECT_TRUE(is_operator("GET", "/metrics"));
  EXPECT_TRUE(is_operator("POST", "/pause"));
  EXPECT_FALSE(is_operator("POST", "/v1/completions"));
  EXPECT_FALSE(is_operator("POST", "/none"));
  HttpRequest request;
  request.address = "1.2.3.4";
  EXPECT_EQ(router_.client_of(request), "1.2.3.4");
  const std::string one = router_.next_request_id(), two = router_.next_request_id();
  EXPECT_EQ(one.size(), 24U);
  EXPECT_NE(one, two);
  EXPECT_EQ(one.substr(0, 16), two.substr(0, 16));
}

TEST(ChatAnswers, JoinPartsOfAWholeAnswer) {
  const auto parts_of = [](bool is_stream, bool includes_reasoning) {
    CallFormat format = detect_call_format("<think></think>");
    ChatAnswerOptions options;
    options.is_stream = is_stream;
    options.includes_reasoning = includes_reasoning;
    options.parser.in_reasoning = true;
    ChatAnswer answer(format, {}, options);
    for (const char* text : {"a", "b</think>", "c", "d"}) answer.feed(text);
    answer.finish(false);
    std::string shown;
    for (const AnswerPart& part : answer.parts()) shown += (part.kind == Kind::reasoning ? "r:" : "c:") + part.text + " ";
    return shown;
  };
  EXPECT_EQ(parts_of(false, true), "r:ab c:cd ");
  EXPECT_EQ(parts_of(true, true), "r:a r:b c:c c:d ");
  EXPECT_EQ(parts_of(false, false), "c:cd ");
}

}  // namespace
}  // namespace quire::openai_parts_test
