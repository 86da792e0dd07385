#include "base/context_overflow.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(ContextOverflow, HasTheTextThatClientsExpectAndCanBeParsed) {
  const Error error = overflow_error("prompt", {.prompt_tokens = 9000, .answer_tokens = 250, .max_model_len = 8192});
  EXPECT_EQ(error.code, ErrorCode::invalid_argument);
  EXPECT_EQ(error.field, "prompt");
  EXPECT_TRUE(
      error.message.starts_with("This model's maximum context length is 8192 tokens. However, you requested 9250 tokens (9000 in the "
                                "messages, 250 in the completion)."))
      << error.message;
  const auto read = overflow_of(error);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->prompt_tokens, 9000U);
  EXPECT_EQ(read->answer_tokens, 250U);
  EXPECT_EQ(read->max_model_len, 8192U);
  EXPECT_FALSE(read->is_at_least);
}

TEST(ContextOverflow, ReportsALowerBoundWhenNotAllTokensWereCounted) {
  const Error error = overflow_error("input", {.prompt_tokens = 70, .max_model_len = 32, .is_at_least = true});
  EXPECT_NE(error.message.find("requested at least 71 tokens"), std::string::npos) << error.message;
  EXPECT_TRUE(overflow_of(error)->is_at_least);
  EXPECT_EQ(overflow_of(error)->prompt_tokens, 70U);
}

TEST(ContextOverflow, OtherErrorsAreNotParsed) {
  EXPECT_FALSE(overflow_of(Error{ErrorCode::invalid_argument, "prompt", "has no tokens", ""}));
  EXPECT_FALSE(overflow_of(Error{ErrorCode::invalid_argument, "stop", "is \"This model's maximum context length is 5 tokens\"", ""}));
  EXPECT_FALSE(overflow_of(Error{ErrorCode::invalid_argument, "", "This model's maximum context length is unknown", ""}));
}

}  // namespace
}  // namespace quire
