// Tests how the served model turns conversations and texts into tokens: continued messages, reused tokens of an earlier turn, limits of
// the context, names of models, embeddings in place of images, and the forms that answers are held to.
#include "server/request/served_model.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/context_overflow.h"
#include "quire/base/structured_output.h"
#include "server/request/image_prompt.h"
#include "server/request/prompt_fingerprint.h"
#include "server/request/schema_memory.h"
#include "server/running_server.h"

namespace quire::served_model_test {
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

// The shape of embeddings, through the text that they make in a prompt.
TEST(EmbeddingShapes, AreThoseThatTheModelTakes) {
  const ImageProcessor* const processor = find_image_processor("llava");
  ASSERT_NE(processor, nullptr);
  const auto placeholders = [&](const ImageInfo& info, std::size_t num_values, std::uint32_t rows, std::uint32_t columns) {
    ChatImage image;
    image.field = "f";
    image.embeds = std::make_shared<ImageEmbeds>(ImageEmbeds{.values = std::vector<float>(num_values), .rows = rows, .columns = columns});
    const std::vector<ChatImage> images = {image};
    const auto prompt = ImagePrompt::create(images, info, processor, 1);
    if (!prompt) return prompt.error().to_string();
    const std::string text = prompt->expand(processor->image_placeholder).value();
    return std::to_string(text.size() / processor->image_placeholder.size());
  };
  const ImageInfo tile{.processor = "llava", .tile_side = 1, .tile_tokens = 4, .embed_size = 3};
  EXPECT_EQ(placeholders(tile, 12, 0, 0), "4");
  EXPECT_EQ(placeholders(tile, 9, 0, 0), "f: has 3 embeddings; send 4, as for an image of one tile");
  EXPECT_EQ(placeholders(tile, 15, 0, 0), "f: has 5 embeddings; send 4, as for an image of one tile");
  EXPECT_EQ(placeholders(tile, 13, 0, 0), "f: has 13 numbers; send 3 numbers for each embedding");
  const ImageInfo none{.processor = "llava", .tile_side = 1, .tile_tokens = 4};
  EXPECT_EQ(placeholders(none, 12, 0, 0), "f: has 12 numbers; send 0 numbers for each embedding");
  const ImageInfo sizes{.processor = "llava", .tile_tokens = 4, .embed_size = 3};
  EXPECT_EQ(placeholders(sizes, 9, 0, 0), "3") << "images of different sizes have different numbers";
  EXPECT_EQ(placeholders(sizes, 12, 0, 0), "4");
  EXPECT_EQ(placeholders(sizes, 15, 0, 0), "f: has 5 embeddings; send at most 4");
  const ImageInfo grid{.processor = "llava", .tile_tokens = 6, .has_grid_positions = true, .embed_size = 1};
  EXPECT_EQ(placeholders(grid, 6, 2, 3), "6");
  EXPECT_EQ(placeholders(grid, 6, 3, 3), "f: has 6 embeddings, but states 3 rows of 3; send as many embeddings as rows times columns");
  EXPECT_EQ(placeholders(grid, 6, 0, 0), "f: has 6 embeddings, but states 0 rows of 0; send as many embeddings as rows times columns");
}

TEST(ImagePlaceholders, AreReplacedInTheirOrder) {
  const ImageProcessor* const processor = find_image_processor("llava");
  ASSERT_NE(processor, nullptr);
  const ImageInfo info{.processor = "llava", .tile_tokens = 4, .token = 9, .embed_size = 1};
  std::vector<ChatImage> images(2);
  for (std::size_t i = 0; i < 2; ++i) {
    images[i].field = "f" + std::to_string(i);
    images[i].digest[0] = static_cast<std::uint8_t>(i + 1);
    images[i].embeds = std::make_shared<ImageEmbeds>(ImageEmbeds{.values = std::vector<float>(i + 1)});
  }
  const std::string mark(processor->image_placeholder);
  const auto prompt = ImagePrompt::create(images, info, processor, 1);
  ASSERT_TRUE(prompt);
  EXPECT_TRUE(prompt->any());
  EXPECT_EQ(prompt->expand("a" + mark + "b" + mark + "c"), "a" + mark + "b" + mark + mark + "c");
  EXPECT_EQ(prompt->expand(mark).error().to_string(), "messages: have 1 placeholders for 2 images; do not write " + mark + " in a text");
  EXPECT_EQ(prompt->expand(mark + mark + mark).error().field, "messages");
  ImageMemory memory;
  const std::vector<TokenId> tokens = {1, 9, 2, 9, 3, 9, 4};
  const auto made = prompt->make(tokens, {memory, "t", ""});
  ASSERT_TRUE(made) << made.error().to_string();
  ASSERT_EQ(made->size(), 2U);
  EXPECT_EQ((*made)[0].position, PlaceholderRange(1, std::vector<std::uint8_t>{1}));
  EXPECT_EQ((*made)[1].position, PlaceholderRange(3, std::vector<std::uint8_t>{1, 0, 1}));
  EXPECT_EQ((*made)[0].identifier, to_hex(images[0].digest)) << "without a salt, equal images share their embeddings";
  const auto salted = prompt->make(tokens, {memory, "t", "salt"}), other = prompt->make(tokens, {memory, "t", "other"});
  EXPECT_NE((*salted)[0].identifier, (*made)[0].identifier);
  EXPECT_NE((*salted)[0].identifier, (*other)[0].identifier);
  EXPECT_NE((*salted)[0].identifier, (*salted)[1].identifier);
  const std::vector<TokenId> short_tokens = {1, 9, 2, 9};
  EXPECT_EQ(prompt->make(short_tokens, {memory, "t", ""}).error().to_string(),
            "f1: has fewer tokens than embeddings; use the tokenizer that belongs to the model");
  const auto all = memory.take(ImageMemory::kMaxBytes - 100, "u");
  const auto rest = memory.take(60, "v");
  EXPECT_EQ(prompt->make(tokens, {memory, "w", ""}).error().to_string(), "the memory for images is full; try again later");
}

TEST(ImageMemoryBytes, AreGivenAndTakenBack) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  ImageMemory memory;
  EXPECT_EQ(memory.take(ImageMemory::kMaxBytes + 1, "a"), nullptr);
  EXPECT_NE(memory.take(ImageMemory::kMaxBytes, "a"), nullptr) << "the refused bytes were not counted";
  auto a = memory.take(200 * kMiB, "a"), b = memory.take(150 * kMiB, "b");
  // 162 MiB are free, so a tenant may hold 324 MiB.
  EXPECT_EQ(memory.take(125 * kMiB, "a"), nullptr);
  auto more = memory.take(124 * kMiB, "a");
  EXPECT_NE(more, nullptr);
  EXPECT_EQ(memory.take(39 * kMiB, "c"), nullptr) << "38 MiB are free";
  EXPECT_NE(memory.take(38 * kMiB, "c"), nullptr);
  more.reset();
  a.reset();
  EXPECT_NE(memory.take(362 * kMiB, "c"), nullptr);
  auto large = memory.reserve_scratch(448 * kMiB);
  EXPECT_NE(large, nullptr) << "an eighth is reserved for small images";
  EXPECT_EQ(memory.reserve_scratch(8 * kMiB + 1), nullptr);
  std::vector<std::shared_ptr<const void>> small;
  for (int i = 0; i < 8; ++i) EXPECT_NE(small.emplace_back(memory.reserve_scratch(8 * kMiB)), nullptr) << i;
  EXPECT_EQ(memory.reserve_scratch(1), nullptr);
  small.pop_back();
  EXPECT_NE(memory.reserve_scratch(1), nullptr);
  large.reset();
  EXPECT_EQ(memory.reserve_scratch(448 * kMiB + 1), nullptr);
}

TEST(ContentParts, IterateWhereATemplateLoopsOverContent) {
  for (const char* text : {"{% for p in m.content %}", "{% for p in m['content'] %}", "{% for p in m[\"content\"] %}",
                           "{%- for item in message2.content -%}", "content {% for x in  m.content %}"})
    EXPECT_TRUE(iterates_parts(text)) << text;
  for (const char* text : {"", "content", ".content", "in content", "{{ m.content }}", "{% if m.content %}", "begin m.content",
                           "{% for p in m.contents2 %}{{ 'a' }}x.content"})
    EXPECT_EQ(iterates_parts(text), std::string_view(text).contains("contents2")) << text;
  json::array messages = json::parse(R"([{"content":"a"},{"content":[1]},{"role":"x"},3])").as_array();
  wrap_in_parts(messages);
  EXPECT_EQ(json::serialize(messages), R"([{"content":[{"type":"text","text":"a"}]},{"content":[1]},{"role":"x"},3])");
}

TEST(SchemaMemoryResults, AreThoseOfEachSchema) {
  if (!has_structured_output()) GTEST_SKIP() << "built without llguidance";
  SchemaMemory memory;
  const auto schema = [](const std::string& type, char filler) {
    return R"({"type":")" + type + R"(","description":")" + std::string(std::size_t{1} << 20, filler) + "\"}";
  };
  // Six schemas of 1 MiB do not all stay in memory.
  for (int round = 0; round < 2; ++round)
    for (const char filler : {'a', 'b', 'c'}) {
      EXPECT_TRUE(memory.check(schema("object", filler), false)) << round;
      EXPECT_FALSE(memory.check(schema("objekt", filler), false)) << round;
    }
  const std::string loose = R"({"type":"object","properties":{"a":{"type":"string"}},"not":{"type":"null"}})";
  for (int round = 0; round < 2; ++round) {
    EXPECT_FALSE(memory.check(loose, false)) << "strict and loose results are separate";
    EXPECT_TRUE(memory.check(loose, true));
  }
  const std::string large = R"({"type":"object","description":")" + std::string(std::size_t{5} << 20, 'x') + "\"}";
  for (int round = 0; round < 2; ++round) EXPECT_TRUE(memory.check(large, false));
  EXPECT_FALSE(memory.check(schema("objekt", 'a'), false));
}

class FormsOfAnswers : public RunningServer {
 protected:
  ClientResponse ask(const std::string& fields) {
    return post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"a"}],"max_tokens":3,)" + fields + "}");
  }
  ClientResponse ask_schema(const std::string& schema, const std::string& more = "") {
    return ask(R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":)" + schema + "}}" + more);
  }
  std::string wanted(std::size_t index) { return engine.at(index).request.structured_output.value().text; }
};

TEST_F(FormsOfAnswers, AreHeldToTheEnforceablePartOfASchema) {
  if (!has_structured_output()) GTEST_SKIP() << "built without llguidance";
  engine.answer_with("{}");
  start();
  const auto plain = ask_schema(R"({"type":"object"})");
  EXPECT_EQ(plain.status, 200U) << plain.body;
  EXPECT_FALSE(plain.json().as_object().contains("warnings"));
  EXPECT_EQ(wanted(0), R"({"type":"object"})");
  const auto part = ask_schema(R"({"type":"object","not":{"type":"null"}})");
  ASSERT_EQ(part.status, 200U) << part.body;
  const std::string warning(part.json().at("warnings").as_array().at(0).as_string());
  EXPECT_TRUE(warning.starts_with("response_format.json_schema.schema: ")) << warning;
  EXPECT_TRUE(warning.ends_with("; the rest of the schema is enforced")) << warning;
  EXPECT_EQ(part.header("X-Quire-Ignored-Fields"), "response_format.json_schema.schema");
  EXPECT_EQ(engine.at(1).request.structured_output->kind, StructuredOutput::Kind::lark);
  EXPECT_EQ(wanted(1), R"(start: %json {"type":"object","not":{"type":"null"},"x-guidance":{"lenient":true}})");
  const auto none = ask_schema(R"({"$ref":"#/$defs/missing"})");
  ASSERT_EQ(none.status, 200U) << none.body;
  const std::string any(none.json().at("warnings").as_array().at(0).as_string());
  EXPECT_TRUE(any.ends_with("; the answer may be any JSON")) << any;
  EXPECT_EQ(wanted(2), "{}");
  const auto strict = ask(R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"not":{}}}})");
  EXPECT_EQ(strict.status, 200U) << "the engine decides";
  EXPECT_EQ(wanted(3), R"({"not":{}})");
}

TEST_F(FormsOfAnswers, ChangeOnlyWhereTheyMust) {
  if (!has_structured_output()) GTEST_SKIP() << "built without llguidance";
  engine.answer_with("{}");
  start();
  EXPECT_EQ(ask(R"("structured_outputs":{"json":{"type":"object"},"whitespace_pattern":"[ ]?"})").status, 200U);
  EXPECT_EQ(wanted(0), R"(start: %json {"type":"object","x-guidance":{"whitespace_pattern":"[ ]?"}})");
  EXPECT_EQ(ask(R"("structured_outputs":{"json":true,"whitespace_pattern":"x"})").status, 200U);
  EXPECT_EQ(wanted(1), R"(start: %json {"x-guidance":{"whitespace_pattern":"x"}})");
  EXPECT_EQ(ask(R"("guided_regex":"a")").status, 200U);
  EXPECT_EQ(wanted(2), "a");
  EXPECT_EQ(engine.at(2).request.structured_output->kind, StructuredOutput::Kind::regex);
  const std::string tool = R"("tools":[{"function":{"name":"f"}}],)";
  const auto both = ask(tool + R"("guided_regex":"a")");
  EXPECT_EQ(both.status, 400U);
  EXPECT_EQ(both.error_message(), "guided_regex: cannot be combined with tools that the model may call; send only one of them");
  EXPECT_EQ(ask(tool + R"("guided_regex":"a","tool_choice":"none")").status, 200U);
  const auto bad =
      R"("tools":[{"function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"strin"}}},"strict":true}}])";
  const auto refused = ask(bad);
  EXPECT_EQ(refused.status, 400U);
  EXPECT_TRUE(refused.error_message().starts_with("tools[0].function.parameters: the schema of 'f' cannot be enforced: "))
      << refused.error_message();
  EXPECT_TRUE(refused.error_message().ends_with("; fix the schema, or leave out 'strict'")) << refused.error_message();
}

TEST(FingerprintHashes, CoverAllMessagesAndTokensBefore) {
  PromptFingerprint one, other;
  std::vector<TokenId> tokens(std::size_t{100} * PromptFingerprint::kBlock + 3, 5);
  add_tokens(one, tokens);
  tokens[0] = 6;
  add_tokens(other, tokens);
  ASSERT_EQ(one.blocks.size(), 100U) << "the last three tokens fill no block";
  EXPECT_EQ(one.num_tokens, tokens.size());
  for (std::size_t i = 0; i < one.blocks.size(); ++i) EXPECT_NE(one.blocks[i], other.blocks[i]) << i;
  const auto chat_of_systems = [](const std::string& first) {
    ChatPrompt chat;
    chat.messages.push_back(json::object{{"role", "system"}, {"content", first}});
    for (int i = 0; i < 99; ++i) chat.messages.push_back(json::object{{"role", "developer"}, {"content", "b"}});
    chat.messages.push_back(json::object{{"role", "user"}, {"content", "c"}});
    return fingerprint_of(chat);
  };
  EXPECT_EQ(chat_of_systems("a").system, chat_of_systems("a").system);
  EXPECT_NE(chat_of_systems("a").system, chat_of_systems("b").system);
  EXPECT_EQ(chat_of_systems("a").turns.size(), 1U);
}

TEST(FingerprintHashes, CountWhatIsReusableAndMissed) {
  const auto print_of = [](std::size_t num_tokens, std::size_t first_other) {
    PromptFingerprint print;
    std::vector<TokenId> tokens(num_tokens);
    std::iota(tokens.begin(), tokens.end(), 0);
    for (std::size_t i = first_other; i < num_tokens; ++i) tokens[i] += 1000;
    add_tokens(print, tokens);
    return print;
  };
  constexpr std::size_t kBlock = PromptFingerprint::kBlock;
  const PromptFingerprint base = print_of(4 * kBlock, 4 * kBlock);
  const auto compared = [&](std::size_t num_tokens, std::size_t first_other) {
    const PromptComparison result = compare(base, print_of(num_tokens, first_other));
    return std::pair(result.num_reusable_tokens, result.num_missed_tokens);
  };
  EXPECT_EQ(compared(4 * kBlock, 4 * kBlock), std::pair(std::uint64_t{4 * kBlock}, std::uint64_t{0}));
  EXPECT_EQ(compared(4 * kBlock, 2 * kBlock), std::pair(std::uint64_t{2 * kBlock}, std::uint64_t{2 * kBlock}));
  EXPECT_EQ(compared(4 * kBlock, 2 * kBlock - 1), std::pair(std::uint64_t{kBlock}, std::uint64_t{3 * kBlock}));
  EXPECT_EQ(compared(3 * kBlock + 1, 4 * kBlock), std::pair(std::uint64_t{3 * kBlock}, std::uint64_t{1}));
  EXPECT_EQ(compared(9 * kBlock, 4 * kBlock), std::pair(std::uint64_t{4 * kBlock}, std::uint64_t{0}));
}

}  // namespace
}  // namespace quire::served_model_test
