// Tests how the parts of an answer reach OpenAI's clients.
#include "server/api/openai/openai_shape.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "server/fake_engine.h"
#include "server/request/completion_request.h"

namespace quire {
namespace {

using PartKind = AnswerPart::Kind;

class OpenAiShapeTest : public ::testing::Test {
 protected:
  std::unique_ptr<AnswerWriter> writer(Api api, const CompletionRequest& request = {}) {
    const OpenAiShape shape(api);
    return shape.make_writer({api, std::string(shape.id_prefix()) + "1", "m", 5}, request, *tokenizer_);
  }
  static std::size_t count(const std::string& text, const std::string& what) {
    std::size_t found = 0;
    for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
    return found;
  }

 private:
  std::unique_ptr<const Tokenizer> tokenizer_ = Tokenizer::create(*byte_model().tokenizer).value();
};

TEST_F(OpenAiShapeTest, FieldsKeepTheirNames) {
  const Error error{ErrorCode::invalid_argument, "messages[2].content", "is wrong", ""};
  EXPECT_EQ(OpenAiShape(Api::chat).with_client_field_names(error).field, "messages[2].content");
}

// Log probabilities wait for the text of their token. The server must offer unreported ones again.
TEST_F(OpenAiShapeTest, WritesNoEventForTheEndOfACall) {
  const auto answer_writer = writer(Api::chat);
  std::string events;
  answer_writer->begin_choice(events, 0, {});
  EXPECT_EQ(count(events, R"("role":"assistant")"), 1U);
  const std::vector<AnswerPart> end{{PartKind::call_end, 0, ""}}, more{{PartKind::call_end, 0, ""}, {PartKind::content, 0, "x"}};
  const std::string before = events;
  EXPECT_FALSE(answer_writer->write_choice(events, {.parts = &end, .finish = {}, .cause = {}}, {}));
  EXPECT_EQ(events, before);
  EXPECT_TRUE(answer_writer->write_choice(events, {.parts = &more, .finish = {}, .cause = {}}, {}));
  EXPECT_EQ(count(events, R"("content":"x")"), 1U);
  EXPECT_EQ(count(events, R"("role":"assistant")"), 1U) << "the role must be written once";
}

// The finish reasons that clients know do not include a failure.
TEST_F(OpenAiShapeTest, ReportsAFailureInASeparateEvent) {
  for (const Api api : {Api::chat, Api::completion}) {
    const auto answer_writer = writer(api);
    std::string events;
    answer_writer->begin_choice(events, 0, {});
    (void)answer_writer->write_choice(events, {.text = "half", .finish = FinishReason::error, .cause = {}}, {});
    const Error refusal{ErrorCode::invalid_argument, "response_format", "cannot be held", "send another"};
    answer_writer->end_stream(events, {}, &refusal);
    EXPECT_EQ(count(events, "half"), 1U);
    EXPECT_EQ(count(events, R"("finish_reason":")"), 0U) << events;
    EXPECT_EQ(count(events, R"("type":"invalid_request_error","param":"response_format")"), 1U) << events;
  }
}

TEST_F(OpenAiShapeTest, PutsTokenIdsIntoTheFirstOfSeveralDeltas) {
  const auto answer_writer = writer(Api::chat);
  std::string events;
  const std::vector<AnswerPart> parts{{PartKind::reasoning, 0, "a"}, {PartKind::content, 0, "b"}};
  const std::vector<TokenId> tokens{7, 8};
  EXPECT_TRUE(answer_writer->write_choice(events, {.parts = &parts, .finish = FinishReason::stop, .token_ids = &tokens, .cause = {}}, {}));
  EXPECT_EQ(count(events, R"("token_ids":[7,8])"), 1U);
  EXPECT_EQ(count(events, R"("token_ids":[])"), 2U) << "the second delta and the end have no tokens";
  EXPECT_LT(events.find(R"("token_ids":[7,8])"), events.find(R"("content":"b")"));
  EXPECT_EQ(count(events, R"("finish_reason":"stop")"), 1U);
}

TEST_F(OpenAiShapeTest, EndsAStreamWithErrorUsageAndDone) {
  CompletionRequest request;
  request.include_usage = true;
  std::string events;
  const Error error{ErrorCode::io, "", "broke", ""};
  writer(Api::completion, request)->end_stream(events, {10, 4, 3}, &error);
  const std::size_t broke = events.find("broke"), usage = events.find(R"("prompt_tokens":10)"), done = events.find("[DONE]");
  ASSERT_NE(done, std::string::npos);
  EXPECT_LT(broke, usage);
  EXPECT_LT(usage, done);
}

TEST_F(OpenAiShapeTest, OmitsABrokenCallFromAWholeAnswer) {
  const std::vector<AnswerPart> parts{{PartKind::call, 0, "f"},      {PartKind::arguments, 0, "{}"}, {PartKind::call_end, 0, ""},
                                      {PartKind::call, 1, "broken"}, {PartKind::call_broken, 1, ""}, {PartKind::content, 0, "x"}};
  const std::string body = writer(Api::chat)->whole_answer({{.parts = &parts, .finish = FinishReason::length, .cause = {}}}, {});
  EXPECT_NE(body.find(R"("content":"x","tool_calls":[{"id":"call_1_0_0")"), std::string::npos) << body;
  EXPECT_EQ(body.find("broken"), std::string::npos);
}

}  // namespace
}  // namespace quire
