#include <gtest/gtest.h>

#include "support/scripted_model.h"
#include "text/sample_vocabulary.h"

namespace quire {
namespace {

using test::ScriptedModel;

class ScriptedModelTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_structured_output()) GTEST_SKIP() << "built without llguidance";
    model_ = ScriptedModel::create(test::byte_level_spec()).value();
  }
  ScriptedModel::Said say(std::string regex, std::string_view text) const {
    return model_->say(model_->compile({.kind = StructuredOutput::Kind::regex, .text = std::move(regex)}).value(), text);
  }
  std::unique_ptr<ScriptedModel> model_;
};

TEST_F(ScriptedModelTest, WritesItsTextWhenTheMaskAllowsIt) {
  const auto said = say("(hello )*[a-z]+", "hello hello");
  EXPECT_EQ(said.text, "hello hello");
  EXPECT_TRUE(said.has_ended);
  EXPECT_EQ(said.num_forced, 0U);
}

TEST_F(ScriptedModelTest, WritesShorterPiecesWhenALongOneIsMasked) {
  const auto said = say("he(l)?lo|help", "hello");
  EXPECT_EQ(said.text, "hello");
  EXPECT_EQ(said.num_forced, 0U);
}

TEST_F(ScriptedModelTest, WritesAForcedTokenWhenItsTextIsNotAllowed) {
  const auto said = say("ab-cd", "abcd");
  EXPECT_EQ(said.text, "ab-cd");
  EXPECT_EQ(said.num_forced, 1U);
  EXPECT_EQ(said.first_forced, 2U);
  EXPECT_TRUE(said.has_ended);
}

TEST_F(ScriptedModelTest, StopsWhenTheGrammarEnds) {
  const auto said = say("ab", "abc");
  EXPECT_EQ(said.text, "ab");
  EXPECT_FALSE(said.has_ended);
}

}  // namespace
}  // namespace quire
