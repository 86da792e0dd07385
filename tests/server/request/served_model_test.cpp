// Tests how the served model turns conversations and texts into tokens: continued messages, reused tokens of an earlier turn, limits of
// the context, and names of models.
#include "server/request/served_model.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/context_overflow.h"
#include "server/fake_engine.h"

namespace quire {
namespace {

namespace json = boost::json;

// Writes strings as they are, and the texts of parts one after another.
constexpr const char* kPartsTemplate =
    "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}"
    "{% endfor %}{% endif %}{% if not loop.last %};{% endif %}{% endfor %}";

class ModelOfBytes : public ::testing::Test {
 protected:
  const ServedModel& model(const ServerOptions& options = {}) {
    model_ = std::move(ServedModel::create(engine, options).value());
    return *model_;
  }
  std::string rendered(const std::string& messages, bool continues = true) {
    ChatPrompt chat;
    chat.messages = json::parse(messages).as_array();
    chat.add_generation_prompt = !continues;
    chat.continue_final_message = continues;
    const auto text = model_->render(std::move(chat));
    return text ? *text : text.error().to_string();
  }

  FakeEngine engine;
  std::unique_ptr<ServedModel> model_;
};

TEST_F(ModelOfBytes, ContinuesTheLastTextOfTheFinalMessage) {
  engine.set_chat_template(kPartsTemplate);
  model();
  const std::string user = R"([{"role":"user","content":"hi"},{"role":"assistant")";
  EXPECT_EQ(rendered(user + R"(,"content":"so "}])"), "<user>hi;<assistant>so ");
  EXPECT_EQ(rendered(user + R"(,"content":[{"type":"text","text":"a"},{"type":"text","text":"b "}]}])"), "<user>hi;<assistant>ab ");
  EXPECT_EQ(rendered(user + R"(,"content":[{"type":"text","text":"a"},{"type":"image"}]}])"), "<user>hi;<assistant>a");
  EXPECT_EQ(rendered(user + R"(,"content":[{"type":"text","text":3}]}])"), "<user>hi;<assistant>3");
  EXPECT_EQ(rendered(user + R"(,"content":[]}])"), "<user>hi;<assistant>");
  EXPECT_EQ(rendered(user + R"(,"content":null}])"), "<user>hi;<assistant>");
  EXPECT_EQ(rendered(user + R"(,"content":"CONTINUE_FINAL_MESSAGE_HERE x"}])"), "<user>hi;<assistant>CONTINUE_FINAL_MESSAGE_HERE x")
      << "only the last one is the server's";
}

TEST_F(ModelOfBytes, ContinuedTextIsTrimmedIfTheTemplateTrims) {
  engine.set_chat_template("{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}");
  model();
  EXPECT_EQ(rendered(R"([{"role":"assistant","content":" so \n"}])"), "<assistant>so");
  engine.set_chat_template("{% for m in messages %}<{{ m.role }}>{% endfor %}");
  model();
  EXPECT_EQ(rendered(R"([{"role":"assistant","content":"so"}])"),
            "continue_final_message: is set, but the chat template does not render the text of the last message; leave it out, or use "
            "/v1/completions");
  EXPECT_EQ(rendered(R"([{"role":"assistant","content":"so"}])", false), "<assistant>");
}

TEST_F(ModelOfBytes, KnowsItsNamesAndAdapters) {
  const auto adapter_error = [&](const std::string& name) {
    const auto adapter = model_->adapter_of(name);
    return adapter ? "'" + *adapter + "'" : adapter.error().to_string();
  };
  for (int i = 0; i < 6; ++i) engine.add_adapter({.name = "a" + std::to_string(i), .path = "p", .digest = ""});
  model({.served_model_aliases = {"alias"}});
  EXPECT_EQ(adapter_error(""), "''");
  EXPECT_EQ(adapter_error("bytes"), "''");
  EXPECT_EQ(adapter_error("alias"), "''");
  EXPECT_EQ(adapter_error("a5"), "'a5'");
  EXPECT_EQ(adapter_error("other"),
            "model: 'other' is not served by this server; use 'bytes' or 'alias' or 'a0' or 'a1' or 'a2' or 'a3' or 'a4' or 'a5', or see "
            "/v1/models");
  model({.served_model_aliases = {"alias", "a*"}});
  EXPECT_EQ(adapter_error("any"), "''") << "a pattern";
  EXPECT_EQ(adapter_error("a5"), "'a5'") << "an adapter has priority over a pattern";
  EXPECT_EQ(model_->names(), (std::vector<std::string>{"bytes", "alias"}));
  model();
  EXPECT_EQ(adapter_error("other"),
            "model: 'other' is not served by this server; use 'bytes' or 'a0' or 'a1' or 'a2' or 'a3' or 'a4' or 'a5'");
  engine.add_adapter({.name = "a6", .path = "p", .digest = ""});
  engine.add_adapter({.name = "a7", .path = "p", .digest = ""});
  EXPECT_TRUE(adapter_error("other").ends_with("'a5' or 'a6', or see /v1/models"));
  EXPECT_TRUE(adapter_error(std::string(300, 'x')).starts_with("model: '" + std::string(200, 'x') + "' is not"));
  engine.add_adapter({.name = "alias", .path = "p", .digest = ""});
  EXPECT_EQ(ServedModel::create(engine, {.served_model_aliases = {"alias"}}).error().to_string(),
            "lora_modules: contain 'alias', which is the name of the model; choose another name for the adapter");
  FakeEngine plain;
  EXPECT_EQ(ServedModel::create(plain, {.enable_return_routed_experts = true}).error().to_string(),
            "enable_return_routed_experts: is set, but the model has no experts; leave it out");
}

TEST_F(ModelOfBytes, FindsTokensOfTexts) {
  const TokenId mark = engine.add_control_token("<mark>");
  model();
  EXPECT_EQ(model_->control_token("<mark>"), mark);
  EXPECT_EQ(model_->control_token("a"), std::nullopt) << "not a control token";
  EXPECT_EQ(model_->control_token("<none>"), std::nullopt);
  EXPECT_EQ(model_->single_token("<mark>"), mark);
  EXPECT_EQ(model_->single_token("a"), 'a');
  EXPECT_EQ(model_->single_token("ab"), std::nullopt);
  EXPECT_EQ(model_->single_token(""), std::nullopt);
  EXPECT_EQ(model_->name(), "bytes");
  EXPECT_EQ(model_->max_model_len(), 512U);
  EXPECT_EQ(model_->hidden_size(), 4U);
  EXPECT_EQ(model_->bos(), "");
  EXPECT_EQ(model_->eos(), "<|end|>");
}

TEST_F(ModelOfBytes, CountsTextsUpToTwoContexts) {
  engine.set_max_model_len(10);
  model();
  const auto encoded = [&](std::size_t num_bytes) {
    const auto tokens = model_->encode(std::string(num_bytes, 'a'), {}, "f");
    if (tokens) return std::to_string(tokens->size());
    const auto overflow = overflow_of(tokens.error());
    if (!overflow) return tokens.error().to_string();
    return tokens.error().field + (overflow->is_at_least ? " at least " : " exactly ") + std::to_string(overflow->prompt_tokens) + " of " +
           std::to_string(overflow->max_model_len);
  };
  EXPECT_EQ(encoded(10), "10");
  EXPECT_EQ(encoded(11), "f exactly 11 of 10");
  EXPECT_EQ(encoded(20), "f exactly 20 of 10");
  EXPECT_EQ(encoded(21), "f at least 21 of 10");
  // The longest token has seven bytes.
  EXPECT_EQ(encoded(146), "f at least 21 of 10");
  EXPECT_EQ(encoded(147), "f at least 21 of 10");
  EXPECT_EQ(encoded(154), "f at least 22 of 10");
  EXPECT_EQ(model_->encode("a\xFF", {}, "f").has_value() ? "" : model_->encode("a\xFF", {}, "f").error().field,
            model_->encode("a\xFF", {}, "f").has_value() ? "" : "f");
}

TEST_F(ModelOfBytes, PromptAndAnswerFillTheContext) {
  engine.set_max_model_len(10);
  model();
  const auto encoded = [&](std::size_t num_bytes, const std::string& fields) {
    auto request = parse_completion_request(Api::completion, R"({"prompt":")" + std::string(num_bytes, 'a') + "\"" + fields + "}",
                                            {.vocab_size = 257, .defaults = {}});
    EXPECT_TRUE(request) << request.error().to_string();
    const auto prompts = model_->encode_prompts(*request);
    if (!prompts) return prompts.error().field + (overflow_of(prompts.error()) ? " overflows" : " " + prompts.error().message);
    return std::to_string(prompts->front().size()) + "+" + std::to_string(request->sampling.max_tokens);
  };
  EXPECT_EQ(encoded(7, R"(,"max_tokens":3)"), "7+3");
  EXPECT_EQ(encoded(7, R"(,"max_tokens":4)"), "max_tokens overflows");
  EXPECT_EQ(encoded(9, R"(,"max_tokens":1)"), "9+1");
  EXPECT_EQ(encoded(9, R"(,"max_tokens":2)"), "max_tokens overflows");
  EXPECT_EQ(encoded(10, R"(,"max_tokens":1)"), "prompt overflows");
  EXPECT_EQ(encoded(11, R"(,"max_tokens":1)"), "prompt overflows");
  EXPECT_EQ(encoded(0, R"(,"max_tokens":1)"), "prompt has no tokens");
  EXPECT_EQ(encoded(20, R"(,"max_tokens":4,"truncate_prompt_tokens":-1)"), "6+4");
  EXPECT_EQ(encoded(6, R"(,"max_tokens":4,"truncate_prompt_tokens":-1)"), "6+4");
  EXPECT_EQ(encoded(20, R"(,"max_tokens":1,"truncate_prompt_tokens":9)"), "9+1");
  EXPECT_EQ(encoded(20, R"(,"max_tokens":10,"truncate_prompt_tokens":-1)"), "prompt has no tokens");
  EXPECT_EQ(encoded(20, R"(,"max_tokens":11,"truncate_prompt_tokens":-1)"), "prompt has no tokens");
  const auto kept = [&] {
    auto request =
        parse_completion_request(Api::completion, R"({"prompt":"abcdef","max_tokens":1,"truncate_prompt_tokens":2})", {.vocab_size = 257});
    return tokens_to_bytes(model_->encode_prompts(*request).value().front());
  };
  EXPECT_EQ(kept(), "ef") << "the question is at the end";
}

TEST_F(ModelOfBytes, AnswersOfChatsFillTheRoom) {
  engine.set_max_model_len(40);
  model();
  const auto room = [&](const std::string& fields, std::optional<std::uint32_t> most = {}) {
    RequestLimits limits{.vocab_size = 257};
    limits.defaults.max_tokens = most;
    auto request = parse_completion_request(Api::chat, R"({"messages":[{"role":"user","content":"hi"}])" + fields + "}", limits);
    EXPECT_TRUE(request) << request.error().to_string();
    const auto prompts = model_->encode_prompts(*request);
    if (!prompts) return prompts.error().to_string();
    EXPECT_EQ(tokens_to_bytes(prompts->front()), "<user>hi<assistant>");
    return std::to_string(request->sampling.max_tokens);
  };
  EXPECT_EQ(room(""), "21") << "40 less the 19 tokens of the prompt";
  EXPECT_EQ(room("", 5), "5");
  EXPECT_EQ(room("", 30), "21");
  EXPECT_EQ(room(R"(,"max_tokens":21)"), "21");
  EXPECT_EQ(room(R"(,"min_tokens":21)"), "21");
  EXPECT_EQ(room(R"(,"min_tokens":22)"), "min_tokens: 22 tokens do not fit into the context; use at most 21");
  EXPECT_TRUE(room(R"(,"max_tokens":22)").starts_with("max_tokens: "));
}

TEST_F(ModelOfBytes, TruncatedChatsLeaveRoomForTheAnswer) {
  engine.set_max_model_len(40);
  model();
  const auto encoded = [&](const std::string& fields) {
    auto request = parse_completion_request(
        Api::chat, R"({"messages":[{"role":"user","content":")" + std::string(50, 'a') + "\"}]," + fields + "}", {.vocab_size = 257});
    EXPECT_TRUE(request) << request.error().to_string();
    const auto prompts = model_->encode_prompts(*request);
    if (!prompts) return prompts.error().field;
    return std::to_string(prompts->front().size()) + "+" + std::to_string(request->sampling.max_tokens);
  };
  EXPECT_EQ(encoded(R"("truncate_prompt_tokens":-1)"), "39+1") << "an answer has at least one token";
  EXPECT_EQ(encoded(R"("truncate_prompt_tokens":-1,"max_tokens":5)"), "35+5");
  EXPECT_EQ(encoded(R"("truncate_prompt_tokens":20)"), "20+20");
  EXPECT_EQ(encoded(R"("max_tokens":5)"), "messages");
}

TEST_F(ModelOfBytes, ChatReusesTheTokensOfItsPreviousTurn) {
  // "hi" is a token that the tokenizer never makes: only tokens of an earlier turn have it.
  TokenizerSpec spec = *engine.model().tokenizer;
  spec.tokens.emplace_back("hi");
  spec.types.push_back(TokenizerSpec::TokenType::normal);
  engine.set_tokenizer(spec);
  engine.set_chat_template("{% for m in messages %}{{ m.content }}{% endfor %}");
  model();
  constexpr TokenId kHiToken = 257;
  const auto encoded = [&](const std::string& text, const std::vector<TokenId>& known) {
    auto request =
        parse_completion_request(Api::chat, R"({"messages":[{"role":"user","content":")" + text + R"("}]})", {.vocab_size = 258});
    request->known_prefix_tokens = std::make_shared<const std::vector<TokenId>>(known);
    const auto prompts = model_->encode_prompts(*request);
    EXPECT_FALSE(request->known_prefix_tokens);
    std::string shown;
    for (const TokenId token : prompts.value().front())
      shown += token == kHiToken ? "H" : token == kFakeEos ? "|" : std::string(1, static_cast<char>(token));
    return shown;
  };
  EXPECT_EQ(encoded("hi!", {}), "hi!");
  EXPECT_EQ(encoded("hi!", {kHiToken}), "H!") << "all known tokens match";
  EXPECT_EQ(encoded("hi!", {kHiToken, '!'}), "H!");
  EXPECT_EQ(encoded("hi!", {kHiToken, '?'}), "hi!") << "a text is not cut between two tokens of text";
  EXPECT_EQ(encoded("hihi!", {kHiToken, kHiToken, '?'}), "hihi!");
  EXPECT_EQ(encoded("hi<|end|>y", {kHiToken, kFakeEos, 'x'}), "H|y") << "it is cut after a control token";
  EXPECT_EQ(encoded("hiy", {kHiToken, kFakeEos, 'x'}), "Hy") << "and before one";
  EXPECT_EQ(encoded("hi<|end|>hiy", {kHiToken, kFakeEos, kHiToken, 'x'}), "H|hiy");
  EXPECT_EQ(encoded("hi<|end|>hi", {kHiToken, kFakeEos, kHiToken, 'x'}), "H|hi");
  EXPECT_EQ(encoded("ho", {kHiToken}), "ho");
}

TEST_F(ModelOfBytes, BadWordsAreEncodedAtTheBeginningOfAText) {
  model();
  const auto encoded = model_->encode_bad_words({"ab", "  c"}).value();
  ASSERT_EQ(encoded.size(), 2U) << "the space is a token, so the word within a text is covered";
  EXPECT_EQ(encoded[0], bytes_to_tokens("ab"));
  EXPECT_EQ(encoded[1], bytes_to_tokens("c"));
  EXPECT_EQ(model_->encode_bad_words({" "}).error().to_string(), "bad_words: contains a word without tokens; leave it out");
}

TEST_F(ModelOfBytes, TextsAndChatsAreEncodedForCounting) {
  model();
  EXPECT_EQ(tokens_to_bytes(model_->encode_input("ab", true).value()), "ab");
  ChatPrompt chat;
  chat.messages = json::parse(R"([{"role":"user","content":"a"}])").as_array();
  EXPECT_EQ(tokens_to_bytes(model_->encode_input(chat, false).value()), "<user>a<assistant>");
  engine.set_max_model_len(2);
  model();
  EXPECT_EQ(model_->encode_input("abc", true).error().field, "prompt");
  EXPECT_EQ(model_->encode_input(chat, true).error().field, "messages");
}

}  // namespace
}  // namespace quire
