// Tests the JSON that answers and events of OpenAI's routes consist of, byte by byte.
#include "server/api/openai/answer_json.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quire/text/tokenizer.h"
#include "server/api/openai/openai_shape.h"
#include "server/fake_engine.h"

namespace quire {
namespace {

namespace json = boost::json;
using PartKind = AnswerPart::Kind;

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

TEST_F(OpenAiText, AnswersAndEventsRepeatTheTierOfABackgroundRequest) {
  AnswerHead flex = head(Api::chat);
  flex.service_tier = "flex";
  EXPECT_EQ(json::parse(openai_answer(flex, *tokenizer_, {}, {}, "")).at("service_tier"), "flex");
  OpenAiWriter writer(flex, *tokenizer_, {});
  std::string events;
  writer.begin_choice(events, 0, {});
  EXPECT_EQ(json::parse(events.substr(events.find('{'))).at("service_tier"), "flex");
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
  const std::vector<AnswerPart> parts = {{PartKind::reasoning, 0, "r"}, {PartKind::content, 0, "c"}};
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

}  // namespace
}  // namespace quire
