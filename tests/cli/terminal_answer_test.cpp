#include "cli/terminal_answer.h"

#include <gtest/gtest.h>

#include "server/fake_engine.h"

namespace quire {
namespace {

TEST(TerminalAnswer, PrintsTheReturnedTextUpToTheLastByte) {
  FakeEngine engine;
  engine.answer_with("caf\xC3");  // ends within a character
  const auto tokenizer = Tokenizer::create(*engine.model().tokenizer);
  ASSERT_TRUE(tokenizer.has_value());
  OutputQueue queue;
  EngineRequest request;
  request.prompt = {1};
  request.sampling.max_tokens = 4;
  std::string printed;
  const auto answer = print_answer(engine, **tokenizer, std::move(request), queue, [&](std::string_view piece) { printed += piece; });
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(printed, "caf\xEF\xBF\xBD");
  EXPECT_EQ(answer->text, printed);
  EXPECT_EQ(answer->num_tokens, 4U);
}

TEST(TerminalAnswer, RefusalIsAnError) {
  FakeEngine engine;
  engine.refuse_with(Error{ErrorCode::overloaded, "", "the waiting queue is full", ""});
  const auto tokenizer = Tokenizer::create(*engine.model().tokenizer);
  OutputQueue queue;
  const auto answer = print_answer(engine, **tokenizer, {}, queue, [](std::string_view) {});
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, ErrorCode::overloaded);
}

}  // namespace
}  // namespace quire
