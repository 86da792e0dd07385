// A scripted model writes tool calls in the models' formats under the grammar's masks, and the answers are parsed: names, argument values,
// number of calls, and the text around them. Delimiters are control tokens, other added tokens, or plain text. QUIRE_TEST_ROUNDS scales the
// number of answers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "support/rounds.h"
#include "support/scripted_model.h"
#include "text/tool_calls/call_grammar.h"
#include "text/tool_calls/call_writing.h"
#include "text/tool_calls/read_answer.h"

namespace quire {
namespace {

namespace json = boost::json;
using test::CallWriting;
using test::ScriptedModel;
using test::WrittenCall;

constexpr std::uint64_t kNumAnswers = 3000;

// The vocabularies of more than six families. Each round uses one.
constexpr const char* kCallVocabularies[] = {"qwen2", "qwen35",    "deepseek-llm", "llama-bpe", "command-r", "falcon",
                                             "gpt-2", "starcoder", "phi-3",        "llama-spm", "mpt",       "gemma-4"};

// A format, and the text in a template by which it is detected.
struct NamedFormat {
  const char* name;
  const char* signs;
};
constexpr NamedFormat kFormats[] = {{"hermes", "<tool_call> \"arguments\""},
                                    {"granite", "<|tool_call|>"},
                                    {"nemotron", "<TOOLCALL>"},
                                    {"apriel", "<tool_calls>["},
                                    {"mistral", "[TOOL_CALLS]"},
                                    {"mistral_v11", "[TOOL_CALLS] [ARGS]"},
                                    {"deepseek_r1", "<｜tool▁calls▁begin｜> ```json"},
                                    {"deepseek_v31", "<｜tool▁calls▁begin｜>"},
                                    {"kimi", "<|tool_calls_section_begin|>"},
                                    {"lfm2", "<|tool_call_start|>"},
                                    {"qwen3_coder", "<tool_call> <parameter="},
                                    {"seed_oss", "<seed:tool_call> <parameter="},
                                    {"glm_4_6", "<tool_call> <arg_key></arg_key>\n<arg_value>"},
                                    {"glm_4_7", "<tool_call> <arg_key></arg_key><arg_value>"},
                                    {"llama_3", "{\"name\": function name, \"parameters\": dictionary"},
                                    {"llama_4", "[func_name1(params_name1=params_value1"},
                                    {"plain", "nothing"},
                                    {"harmony", "<|channel|><|message|>"}};

CallFormat format_named(const NamedFormat& named, bool thinks) {
  CallFormat format = detect_call_format(named.signs);
  if (!thinks || format.style == CallStyle::harmony) return format;
  format.think_open = "<think>";
  format.think_close = "</think>";
  return format;
}

enum class Marks : std::uint8_t { control, added, text };
constexpr const char* kMarkNames[] = {"control tokens", "added tokens", "plain text"};

// A scripted model whose vocabulary has the delimiters of every format.
class CallSpeaker {
 public:
  static const CallSpeaker* get(const std::string& vocabulary, Marks marks) {
    static std::map<std::pair<std::string, Marks>, std::unique_ptr<CallSpeaker>> all;
    auto& speaker = all[{vocabulary, marks}];
    if (speaker == nullptr) speaker = std::unique_ptr<CallSpeaker>(new CallSpeaker(vocabulary, marks));
    return speaker.get();
  }
  [[nodiscard]] bool is_there() const { return model_ != nullptr; }

  // Returns the single token that a server uses for a delimiter (ServedModel::single_token).
  [[nodiscard]] std::optional<TokenId> token_of(std::string_view text) const {
    if (text.empty()) return std::nullopt;
    const auto tokens = model_->tokenizer().encode(text, {.add_special = false, .parse_special = true});
    return tokens && tokens->size() == 1 ? std::optional(tokens->front()) : std::nullopt;
  }
  [[nodiscard]] ScriptedModel::Said say(const CallFormat& format, const std::vector<Tool>& tools, CallGrammarOptions options,
                                        std::string_view text) const {
    const auto begin = begin_of(format, options, text);
    if (!begin) return {.text = std::string(text), .has_ended = true};
    auto matcher = compile(format, tools, options, *begin > 0);
    if (!matcher) return {.text = {}, .error = matcher.error().to_string()};
    ScriptedModel::Said said = model_->say(*std::move(matcher), text.substr(*begin));
    said.text.insert(0, text.substr(0, *begin));
    return said;
  }
  // Returns whether the first token of `next` is allowed after `text`, which the grammar accepts.
  [[nodiscard]] bool may_say(const CallFormat& format, const std::vector<Tool>& tools, CallGrammarOptions options, std::string_view text,
                             std::string_view next) const {
    const auto begin = begin_of(format, options, text);
    auto matcher = compile(format, tools, options, begin.value_or(0) > 0);
    EXPECT_TRUE(begin && matcher);
    const EncodeOptions as_said{.add_special = false, .parse_special = true};
    for (const TokenId token : *model_->tokenizer().encode(text.substr(*begin), as_said)) EXPECT_TRUE(matcher->accept(token)) << text;
    const auto then = *model_->tokenizer().encode(next, as_said);
    return matcher->count_valid(std::span(then).first(1)) == 1;
  }

 private:
  // Returns where the grammar begins, as in the server: after a delimiter of one token, unless calls are required. nullopt: no delimiter.
  [[nodiscard]] std::optional<std::size_t> begin_of(const CallFormat& format, const CallGrammarOptions& options,
                                                    std::string_view text) const {
    const bool is_marked = !format.open.empty() && format.style != CallStyle::llama;
    if (options.is_required || !is_marked || !token_of(format.open)) return 0;
    const std::size_t at = text.find(format.open);
    return at == std::string_view::npos ? std::nullopt : std::optional(at + format.open.size());
  }
  [[nodiscard]] Result<GrammarMatcher> compile(const CallFormat& format, const std::vector<Tool>& tools, CallGrammarOptions options,
                                               bool is_after_delimiter) const {
    options.token = [this](std::string_view mark) { return token_of(mark); };
    options.is_after_delimiter = is_after_delimiter;
    return model_->compile({.kind = StructuredOutput::Kind::lark, .text = call_grammar(format, tools, options)});
  }
  CallSpeaker(const std::string& vocabulary, Marks marks) {
    const std::string path = test::vocabs_folder() + "/ggml-vocab-" + vocabulary + ".gguf";
    if (test::vocabs_folder().empty() || !std::filesystem::exists(path)) return;
    auto spec = test::load_spec(path);
    if (!spec) return;
    for (const NamedFormat& named : kFormats)
      for (const std::string& mark : format_named(named, true).delimiters()) add(*spec, mark, marks);
    auto model = ScriptedModel::create(*std::move(spec));
    if (model) model_ = *std::move(model);
  }
  static void add(TokenizerSpec& spec, const std::string& mark, Marks marks) {
    using Type = TokenizerSpec::TokenType;
    const auto found = std::ranges::find(spec.tokens, mark);
    if (spec.types.empty()) spec.types.assign(spec.tokens.size(), Type::normal);
    if (marks == Marks::text) {
      if (found != spec.tokens.end()) *found = fmt::format("<unused {}>", found - spec.tokens.begin());
      return;
    }
    const Type type = marks == Marks::control ? Type::control : Type::user_defined;
    if (found != spec.tokens.end()) {
      spec.types[static_cast<std::size_t>(found - spec.tokens.begin())] = type;
      return;
    }
    spec.tokens.push_back(mark);
    spec.types.push_back(type);
    if (!spec.scores.empty()) spec.scores.push_back(0);
  }

  std::unique_ptr<ScriptedModel> model_;
};

// SentencePiece treats DeepSeek's "▁" as a space.
bool can_write(std::string_view vocabulary, const NamedFormat& named) {
  const bool has_pieces = vocabulary == "llama-spm" || vocabulary == "phi-3" || vocabulary == "gemma-4";
  return !has_pieces || std::string_view(named.signs).find("▁") == std::string_view::npos;
}

std::string without_space(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (c != ' ' && c != '\n') out += c;
  return out;
}

// A writer may write a whole number as 12.0 or 12e1.
json::value with_doubles(json::value value) {
  if (value.is_number()) return value.to_number<double>();
  if (value.is_array())
    for (json::value& item : value.get_array()) item = with_doubles(std::move(item));
  if (value.is_object())
    for (auto& field : value.get_object()) field.value() = with_doubles(std::move(field.value()));
  return value;
}

void expect_calls(const ReadAnswer& answer, const std::vector<WrittenCall>& calls, const std::string& text) {
  ASSERT_EQ(answer.calls.size(), calls.size()) << text;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(answer.calls[i].name, calls[i].name) << text;
    EXPECT_EQ(with_doubles(json::parse(answer.calls[i].arguments)), with_doubles(calls[i].arguments)) << text;
  }
}

class MaskedCalls : public testing::TestWithParam<NamedFormat> {
 protected:
  void SetUp() override {
    if (!has_structured_output()) GTEST_SKIP() << "built without llguidance";
    if (test::vocabs_folder().empty()) GTEST_SKIP() << "QUIRE_TEST_VOCABS names no folder with vocabulary files";
  }
};

TEST_P(MaskedCalls, AreParsedUnchangedInTheStylesOfRealWriters) {
  std::mt19937_64 random(std::hash<std::string_view>()(GetParam().name));
  CallWriting::Counts counts;
  std::map<std::string, std::size_t> vocabularies;
  for (std::uint64_t round = 0; round < rounds_of(kNumAnswers / std::size(kFormats)) && !HasFailure(); ++round) {
    const char* vocabulary = kCallVocabularies[(round / 3 + random() % 3) % std::size(kCallVocabularies)];
    const auto marks = static_cast<Marks>(round % 3);
    const CallSpeaker* speaker = CallSpeaker::get(vocabulary, marks);
    if (!speaker->is_there() || !can_write(vocabulary, GetParam())) continue;
    ++vocabularies[vocabulary];
    const bool thinks = random() % 2 == 0;
    const CallFormat format = format_named(GetParam(), thinks);
    CallWriting writing(format, random, counts);
    const bool is_required = random() % 2 == 0;
    const CallWriting::Answer answer = writing.answer(is_required);
    const ScriptedModel::Said said = speaker->say(format, answer.tools, {.is_required = is_required}, answer.text);
    const std::string where =
        fmt::format("{}, {}, {}, round {}\n{}\n", vocabulary, kMarkNames[round % 3], is_required ? "required" : "auto", round, answer.text);
    ASSERT_EQ(said.error, "") << where;
    ASSERT_EQ(said.text, answer.text) << where;
    ASSERT_TRUE(said.has_ended) << where;
    ASSERT_EQ(said.num_forced, 0U) << where;
    const ReadAnswer read = read_answer(format, answer.tools, said.text);
    ASSERT_NO_FATAL_FAILURE(expect_calls(read, answer.calls, where));
    EXPECT_EQ(without_space(read.content), without_space(answer.said)) << where;
    EXPECT_EQ(without_space(read.reasoning), without_space(answer.thought)) << where;
  }
  std::cout << GetParam().name << ": " << counts.num_answers << " answers, " << counts.num_calls << " calls, " << counts.num_values
            << " values in " << counts.spellings.size() << " spellings, " << vocabularies.size() << " vocabularies\n";
}

// Delimiters with a common prefix ("<｜tool▁call▁begin｜>" and "<｜tool▁calls▁end｜>") must each be one token, control token or not.
TEST_P(MaskedCalls, WriteTheirDelimitersAsSingleTokens) {
  const CallFormat format = format_named(GetParam(), false);
  std::mt19937_64 random(5);
  CallWriting::Counts counts;
  for (const char* vocabulary : {"deepseek-llm", "llama-spm"}) {
    if (!can_write(vocabulary, GetParam())) continue;
    for (const Marks marks : {Marks::control, Marks::added}) {
      const CallSpeaker* speaker = CallSpeaker::get(vocabulary, marks);
      ASSERT_TRUE(speaker->is_there());
      for (std::size_t num_calls = 1; num_calls <= 4; ++num_calls) {
        for (const bool is_required : {false, true}) {
          CallWriting writing(format, random, counts);
          const CallWriting::Answer answer = writing.plain_answer(num_calls, is_required);
          const ScriptedModel::Said said = speaker->say(format, answer.tools, {.is_required = is_required}, answer.text);
          const std::string where =
              fmt::format("{}, {}, {} calls\n{}\n", vocabulary, kMarkNames[static_cast<int>(marks)], num_calls, answer.text);
          ASSERT_EQ(said.text, answer.text) << where << said.error;
          std::size_t num_marks = 0;
          for (const std::string& mark : format.delimiters()) {
            const auto token = speaker->token_of(mark);
            ASSERT_TRUE(token.has_value()) << mark;
            const auto said_times = static_cast<std::size_t>(std::ranges::count(said.tokens, *token));
            std::size_t written_times = 0;
            const bool was_said_before = !is_required && mark == format.open && format.style != CallStyle::llama;
            for (std::size_t at = answer.text.find(mark); at != std::string::npos; at = answer.text.find(mark, at + mark.size()))
              ++written_times;
            EXPECT_EQ(said_times, written_times - (was_said_before ? 1 : 0)) << mark << where;
            num_marks += written_times;
          }
          if (!format.open.empty() && format.style != CallStyle::llama) EXPECT_GE(num_marks, 1U);
          ASSERT_NO_FATAL_FAILURE(expect_calls(read_answer(format, answer.tools, said.text), answer.calls, where));
        }
      }
    }
  }
}

// A delimiter that is only mentioned begins no call, in thoughts and elsewhere.
TEST_P(MaskedCalls, DoNotBeginAtAMentionedDelimiter) {
  const CallFormat format = format_named(GetParam(), true);
  if (format.open.empty() || format.style == CallStyle::llama) GTEST_SKIP() << "the format has no delimiters";
  const std::vector<Tool> tools = CallWriting::two_tools();
  for (const char* vocabulary : {"qwen2", "phi-3"}) {
    if (!can_write(vocabulary, GetParam())) continue;
    for (const Marks marks : {Marks::control, Marks::added, Marks::text}) {
      const CallSpeaker* speaker = CallSpeaker::get(vocabulary, marks);
      ASSERT_TRUE(speaker->is_there());
      for (const char* words : {"I could use {} here, but no.", "The model writes `{}` before a call, and `{}` again.", "{}", "Say {}...",
                                "{} {{...}}", "{}\n\n{}", "It is {}{{\"name\": ...", "{} is <function=...>", "({}) [1, 2]", "{}s"}) {
        const std::string mention = fmt::format(fmt::runtime(words), format.open, format.open);
        const auto unchanged = [&](const std::string& text) {
          const ScriptedModel::Said said = speaker->say(format, tools, {}, text);
          EXPECT_EQ(said.text, text) << vocabulary << ", " << kMarkNames[static_cast<int>(marks)] << said.error;
          EXPECT_EQ(said.num_forced + said.num_split, 0U) << text;
          EXPECT_TRUE(said.has_ended) << text;
          return read_answer(format, tools, said.text);
        };
        if (format.style == CallStyle::mistral_v11 && std::string_view(words) == "{}s")
          continue;  // a name begins right after this delimiter
        const ReadAnswer said = unchanged(mention);
        EXPECT_EQ(said.content, mention);
        EXPECT_EQ(said.calls.size() + said.num_broken, 0U);
        const ReadAnswer thought = unchanged("<think>" + mention + "</think>No call needed.");
        EXPECT_EQ(thought.reasoning, mention);
        EXPECT_EQ(thought.content, "No call needed.");
      }
    }
  }
}

// The grammar constrains a call that has begun, even after mentioned delimiters. It always enforces a required call.
TEST_P(MaskedCalls, AreConstrainedOnceTheyBeginOrAreRequired) {
  const CallFormat format = format_named(GetParam(), true);
  std::mt19937_64 random(7);
  CallWriting::Counts counts;
  for (const Marks marks : {Marks::control, Marks::added, Marks::text}) {
    const CallSpeaker* speaker = CallSpeaker::get("qwen2", marks);
    ASSERT_TRUE(speaker->is_there());
    EXPECT_FALSE(speaker->may_say(format, CallWriting::two_tools(), {.is_required = true}, "", "No."));
    if (format.open.empty() || format.style == CallStyle::llama) continue;
    CallWriting writing(format, random, counts);
    const CallWriting::Answer answer = writing.plain_answer(1, true);
    // The prefix ends after the name and the next delimiter or character.
    std::size_t last = answer.text.rfind(answer.calls[0].name) + answer.calls[0].name.size();
    const std::vector<std::string> all_marks = format.delimiters();
    const auto next = std::ranges::find_if(all_marks, [&](const std::string& mark) { return answer.text.substr(last).starts_with(mark); });
    last += next == all_marks.end() ? 1 : next->size();
    for (const std::string& before : {std::string(), "A " + format.open + " comes. ", "<think>" + format.open + "</think>"}) {
      const std::string begun = before + answer.text.substr(0, last);
      EXPECT_FALSE(speaker->may_say(format, answer.tools, {}, begun, "~")) << begun << kMarkNames[static_cast<int>(marks)];
    }
  }
}

// The regex that separates calls from text contains all tool names, so it must work with many of them.
TEST_P(MaskedCalls, WorkWithManyTools) {
  const CallFormat format = format_named(GetParam(), true);
  std::vector<Tool> tools = CallWriting::two_tools();
  for (int i = 0; i < 60; ++i) tools.push_back({.name = fmt::format("server{}.tool-{}", i % 7, i), .parameters = nullptr, .strict = false});
  std::mt19937_64 random(9);
  CallWriting::Counts counts;
  CallWriting writing(format, random, counts);
  const CallWriting::Answer answer = writing.plain_answer(2, false);
  for (const Marks marks : {Marks::added, Marks::text}) {
    const ScriptedModel::Said said = CallSpeaker::get("qwen2", marks)->say(format, tools, {}, answer.text);
    EXPECT_EQ(said.text, answer.text) << said.error;
    EXPECT_EQ(read_answer(format, tools, said.text).calls.size(), 2U);
  }
}

INSTANTIATE_TEST_SUITE_P(All, MaskedCalls, testing::ValuesIn(kFormats),
                         [](const testing::TestParamInfo<NamedFormat>& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace quire
