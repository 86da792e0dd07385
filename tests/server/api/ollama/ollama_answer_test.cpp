// Tests answers and lines of streams in Ollama's format.
#include "server/api/ollama/ollama_answer.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "server/fake_engine.h"
#include "server/http/error_response.h"

namespace quire::ollama_answer_test {
namespace {

namespace json = boost::json;
using PartKind = AnswerPart::Kind;
using std::chrono::milliseconds;

const std::vector<AnswerPart> kParts{{PartKind::reasoning, 0, "hm"},        {PartKind::content, 0, "a\"b"}, {PartKind::call, 0, "f"},
                                     {PartKind::arguments, 0, "{\"x\":\n"}, {PartKind::arguments, 0, "1}"}, {PartKind::call_end, 0, ""}};
const Usage kUsage{.prompt_tokens = 10, .completion_tokens = 4, .to_first_token = milliseconds(2), .elapsed = milliseconds(5)};

struct Answer {
  explicit Answer(bool is_chat, std::vector<std::string> warnings = {})
      : writer({.api = Api::chat, .id = "ollama-1", .model = "m", .created_s = 0, .warnings = std::move(warnings)},
               {.model = "m:latest", .is_chat = is_chat, .received = std::chrono::steady_clock::now()}, *tokenizer) {}
  std::unique_ptr<const Tokenizer> tokenizer = Tokenizer::create(*byte_model().tokenizer).value();
  OllamaWriter writer;
};

// Removes the members whose values depend on the clock, after checking them.
json::object without_times(json::object answer) {
  const std::string created(answer.at("created_at").as_string());
  EXPECT_TRUE(created.size() == 27 && created[10] == 'T' && created[19] == '.' && created.back() == 'Z') << created;
  answer.erase("created_at");
  for (const char* varies : {"total_duration", "load_duration"})
    if (const json::value* time = answer.if_contains(varies)) {
      EXPECT_GT(time->as_int64(), 0) << varies;
      answer.erase(varies);
    }
  return answer;
}

std::vector<json::object> lines_of(const std::string& stream) {
  std::vector<json::object> lines;
  std::istringstream in(stream);
  for (std::string line; std::getline(in, line);) lines.push_back(without_times(json::parse(line).as_object()));
  return lines;
}

ChoiceText ended(const std::vector<AnswerPart>* parts, FinishReason reason = FinishReason::stop) {
  return {.parts = parts, .finish = reason};
}

const char* const kEnd = R"("done":true,"done_reason":"stop","prompt_eval_count":10,"prompt_eval_duration":2000000,"eval_count":4,
  "eval_duration":3000000})";

TEST(OllamaAnswer, WritesTheMessageOfAWholeAnswer) {
  Answer answer(true);
  const auto whole = without_times(json::parse(answer.writer.whole_answer({ended(&kParts)}, kUsage)).as_object());
  EXPECT_EQ(whole, json::parse(std::string(R"({"model":"m:latest","message":{"role":"assistant","content":"a\"b","thinking":"hm",
    "tool_calls":[{"id":"call_1_0","function":{"index":0,"name":"f","arguments":{"x":1}}}]},)") +
                               kEnd))
      << json::serialize(whole);
}

TEST(OllamaAnswer, WritesTheResponseOfAWholeAnswer) {
  Answer answer(false);
  const ChoiceText choice{.text = "hello", .finish = FinishReason::stop};
  EXPECT_EQ(without_times(json::parse(answer.writer.whole_answer({choice}, kUsage)).as_object()),
            json::parse(std::string(R"({"model":"m:latest","response":"hello",)") + kEnd));
}

TEST(OllamaAnswer, StreamsOneObjectPerLine) {
  Answer answer(true);
  std::string events;
  EXPECT_TRUE(answer.writer.write_choice(events, {.parts = &kParts}, kUsage));
  EXPECT_TRUE(answer.writer.write_choice(events, ended(nullptr), kUsage));
  answer.writer.end_stream(events, kUsage, nullptr);
  const auto lines = lines_of(events);
  ASSERT_EQ(lines.size(), 4U) << events;
  EXPECT_EQ(lines[0], json::parse(R"({"model":"m:latest","message":{"role":"assistant","content":"","thinking":"hm"},"done":false})"));
  EXPECT_EQ(lines[1], json::parse(R"({"model":"m:latest","message":{"role":"assistant","content":"a\"b"},"done":false})"));
  EXPECT_EQ(lines[2], json::parse(R"({"model":"m:latest","message":{"role":"assistant","content":"","tool_calls":[
    {"id":"call_1_0","function":{"index":0,"name":"f","arguments":{"x":1}}}]},"done":false})"));
  EXPECT_EQ(lines[3], json::parse(std::string(R"({"model":"m:latest","message":{"role":"assistant","content":""},)") + kEnd));
}

TEST(OllamaAnswer, StreamsPiecesOfACompletion) {
  Answer answer(false);
  std::string events;
  EXPECT_TRUE(answer.writer.write_choice(events, {.text = "a"}, kUsage));
  EXPECT_TRUE(answer.writer.write_choice(events, {.text = "b", .finish = FinishReason::length}, kUsage));
  const auto lines = lines_of(events);
  ASSERT_EQ(lines.size(), 3U) << events;
  EXPECT_EQ(lines[0].at("response"), "a");
  EXPECT_EQ(lines[1].at("response"), "b");
  EXPECT_EQ(lines[2].at("response"), "");
  EXPECT_EQ(lines[2].at("done_reason"), "length");
}

TEST(OllamaAnswer, LeavesOutCallsThatAreNotComplete) {
  for (const PartKind end : {PartKind::call_truncated, PartKind::call_broken}) {
    const std::vector<AnswerPart> parts{
        {PartKind::content, 0, "x"}, {PartKind::call, 0, "f"}, {PartKind::arguments, 0, R"({"x")"}, {end, 0, ""}};
    Answer answer(true);
    const json::value whole = json::parse(answer.writer.whole_answer({ended(&parts, FinishReason::length)}, kUsage));
    EXPECT_EQ(whole.at("message"), json::parse(R"({"role":"assistant","content":"x"})"));
    Answer streamed(true);
    std::string events;
    EXPECT_TRUE(streamed.writer.write_choice(events, {.parts = &parts}, kUsage));
    EXPECT_EQ(lines_of(events).size(), 1U) << events;
  }
}

TEST(OllamaAnswer, WritesLogprobsOnce) {
  const std::vector<PositionLogprobs> logprobs{
      {.entries = {{.token = 'a', .logprob = -1.0F, .rank = 1}, {.token = 'a', .logprob = -1.0F, .rank = 1}}}};
  const std::vector<AnswerPart> begun{{PartKind::call, 0, "f"}}, done{{PartKind::arguments, 0, "{}"}, {PartKind::call_end, 0, ""}};
  Answer answer(true);
  std::string events;
  EXPECT_TRUE(answer.writer.write_choice(events, {.parts = &begun, .logprobs = &logprobs}, kUsage));
  EXPECT_EQ(events, "") << "a call is sent when it is complete";
  EXPECT_TRUE(answer.writer.write_choice(events, ended(&done), kUsage));
  const auto lines = lines_of(events);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].at("logprobs"),
            json::parse(R"([{"token":"a","logprob":-1,"bytes":[97],"top_logprobs":[{"token":"a","logprob":-1,"bytes":[97]}]}])"));
  EXPECT_FALSE(lines[1].contains("logprobs"));
}

TEST(OllamaAnswer, EndsAFailedStreamWithTheError) {
  Answer answer(true);
  std::string events;
  const std::vector<AnswerPart> none;
  EXPECT_TRUE(answer.writer.write_choice(events, ended(&none, FinishReason::error), kUsage));
  const Error error{ErrorCode::io, "", "the engine failed", "try again"};
  answer.writer.end_stream(events, kUsage, &error);
  EXPECT_EQ(events, "{\"error\":\"the engine failed; try again\"}\n");
}

TEST(OllamaAnswer, ReportsConstraintsThatAreNotEnforced) {
  Answer answer(true, {"format: not enforced"});
  const json::value whole = json::parse(answer.writer.whole_answer({ended(&kParts)}, kUsage));
  EXPECT_EQ(whole.at("warnings"), json::parse(R"(["format: not enforced"])"));
}

TEST(OllamaAnswer, AnswersABodyWithoutAPrompt) {
  EXPECT_EQ(without_times(json::parse(loaded_answer({.model = "m"}, false)).as_object()),
            json::parse(R"({"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"load"})"));
  EXPECT_EQ(without_times(json::parse(loaded_answer({.model = "m", .is_chat = false}, true)).as_object()),
            json::parse(R"({"model":"m","response":"","done":true,"done_reason":"unload"})"));
}

TEST(OllamaAnswer, ConvertsErrorsToOllamasFormat) {
  const HttpResponse error = as_ollama_error(error_response({ErrorCode::invalid_argument, "think", "is \"x\"", "send true"}));
  EXPECT_EQ(error.status, 400U);
  EXPECT_EQ(error.body, R"({"error":"think: is \"x\"; send true"})");
  EXPECT_EQ(as_ollama_error({200, "application/json", "{}", {}}).body, "{}");
}

}  // namespace
}  // namespace quire::ollama_answer_test
