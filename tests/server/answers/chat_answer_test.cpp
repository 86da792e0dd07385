// Tests the parts of a chat's answer.
#include "server/answers/chat_answer.h"

#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

using PartKind = AnswerPart::Kind;

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
    for (const AnswerPart& part : answer.parts()) shown += (part.kind == PartKind::reasoning ? "r:" : "c:") + part.text + " ";
    return shown;
  };
  EXPECT_EQ(parts_of(false, true), "r:ab c:cd ");
  EXPECT_EQ(parts_of(true, true), "r:a r:b c:c c:d ");
  EXPECT_EQ(parts_of(false, false), "c:cd ");
}

}  // namespace
}  // namespace quire
