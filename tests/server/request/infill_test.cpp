// Tests `suffix`: the prompt surrounds the text to fill in.
#include "server/request/infill.h"

#include <string>
#include <vector>

#include "server/request/served_model.h"
#include "server/running_server.h"
#include "text/sample_vocabulary.h"

namespace quire {
namespace {

using InfillTest = RunningServer;

std::vector<TokenId> joined(TokenId first, std::string_view prefix, TokenId second, std::string_view suffix, TokenId third) {
  std::vector<TokenId> tokens{first};
  const auto add = [&tokens](std::string_view text) {
    for (const TokenId token : bytes_to_tokens(text)) tokens.push_back(token);
  };
  add(prefix);
  tokens.push_back(second);
  add(suffix);
  tokens.push_back(third);
  return tokens;
}

TEST_F(InfillTest, KnowsEachFamilyOfSpecialTokens) {
  const std::array<std::array<std::string, 3>, 3> families = {{{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
                                                               {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
                                                               {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"}}};
  for (const auto& names : families) {
    FakeEngine fake;
    std::array<TokenId, 3> ids{};
    for (std::size_t i = 0; i < 3; ++i) {
      const auto before = Tokenizer::create(*fake.model().tokenizer).value();
      EXPECT_FALSE(find_infill(*before)) << "all three tokens are required";
      ids[i] = fake.add_control_token(names[i]);
    }
    const auto tokenizer = Tokenizer::create(*fake.model().tokenizer).value();
    const auto infill = find_infill(*tokenizer);
    ASSERT_TRUE(infill.has_value()) << names[0];
    EXPECT_EQ(infill_prompt(*infill, *tokenizer, bytes_to_tokens("ab"), bytes_to_tokens("c")), joined(ids[0], "ab", ids[1], "c", ids[2]));
  }
}

TEST_F(InfillTest, AcceptsUserDefinedSpecialTokens) {
  TokenizerSpec spec = *engine.model().tokenizer;
  for (const char* name : {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"}) {
    spec.tokens.emplace_back(name);
    spec.types.push_back(TokenizerSpec::TokenType::user_defined);
  }
  EXPECT_TRUE(find_infill(*Tokenizer::create(spec).value()).has_value());
  for (auto type = spec.types.end() - 3; type != spec.types.end(); ++type) *type = TokenizerSpec::TokenType::normal;
  EXPECT_FALSE(find_infill(*Tokenizer::create(spec).value()).has_value()) << "a token that merges produce is not a special token";
}

TEST_F(InfillTest, AnswerEndsBeforeASpecialToken) {
  const TokenId prefix = engine.add_control_token("<fim_prefix>");
  const TokenId suffix = engine.add_control_token("<fim_suffix>");
  const TokenId middle = engine.add_control_token("<fim_middle>");
  const TokenId pad = engine.add_control_token("<fim_pad>");
  engine.answer_with("hello");
  start();
  const auto answer =
      post("/v1/completions", R"({"prompt": ["a<fim_pad>", [97, 98]], "suffix": "<fim_middle>z", "stop_token_ids": [7]})").json();
  EXPECT_EQ(answer.at("choices").as_array().size(), 2U);
  EXPECT_EQ(engine.at(0).request.prompt, joined(prefix, "a<fim_pad>", suffix, "<fim_middle>z", middle))
      << "control tokens in text are not parsed";
  EXPECT_EQ(engine.at(1).request.prompt, joined(prefix, "ab", suffix, "<fim_middle>z", middle));
  EXPECT_EQ(engine.at(0).request.sampling.stop_token_ids, (std::vector<TokenId>{7, prefix, suffix, middle, pad}));
}

// The prefix begins a text and gets SentencePiece's space before its first word; the suffix does not.
TEST_F(InfillTest, CodeLlamasSuffixGetsNoLeadingSpace) {
  for (const auto type : {TokenizerSpec::TokenType::control, TokenizerSpec::TokenType::normal}) {
    TokenizerSpec spec = test::sentencepiece_spec();
    const TokenId prefix = test::add_token(spec, "\u2581<PRE>", type, -50.0F);
    const TokenId middle = test::add_token(spec, "\u2581<MID>", type, -51.0F);
    const TokenId suffix = test::add_token(spec, "\u2581<SUF>", type, -52.0F);
    const TokenId end = test::add_token(spec, "\u2581<EOT>", type, -53.0F);
    const auto tokenizer = Tokenizer::create(spec).value();
    const TokenId hello = tokenizer->find(" hello").value(), lo = tokenizer->find("lo").value(), space = tokenizer->find(" ").value();
    ASSERT_EQ(tokenizer->encode("lo", {.add_special = false}).value(), (std::vector<TokenId>{space, lo}));
    FakeEngine fake;
    fake.set_tokenizer(spec);
    const auto model = ServedModel::create(fake, {}).value();
    CompletionRequest request;
    request.prompts = {"hello"};
    request.max_tokens = 5;
    request.suffix = "lo";
    EXPECT_EQ(model->encode_prompts(request).value().front(), (std::vector<TokenId>{*spec.bos, prefix, hello, suffix, lo, middle}));
    EXPECT_EQ(request.sampling.stop_token_ids, (std::vector<TokenId>{prefix, suffix, middle, end}));
  }
}

TEST_F(InfillTest, EmptySuffixIsIgnored) {
  engine.answer_with("hello");
  start();
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "a", "suffix": ""})").status, 200);
  EXPECT_EQ(engine.at(0).request.prompt, bytes_to_tokens("a"));
}

TEST_F(InfillTest, RefusesModelsWithoutInfillTokens) {
  start();
  const auto refused = post("/v1/completions", R"({"prompt": "a", "suffix": "b"})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.json().at("error").at("param"), "suffix");
}

TEST_F(InfillTest, RefusesASuffixThatDoesNotFit) {
  engine.add_control_token("<fim_prefix>");
  engine.add_control_token("<fim_suffix>");
  engine.add_control_token("<fim_middle>");
  start();
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "a", "suffix": ")" + std::string(600, 'b') + R"("})").json().at("error").at("param"),
            "suffix");
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "a", "suffix": ")" + std::string(510, 'b') + R"("})").status, 400);
}

}  // namespace
}  // namespace quire
