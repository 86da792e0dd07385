// Checks that the text that a model writes under a constraint parses to the model's value. Values are random, in the styles of real
// writers, under schemas that allow them, and written token by token with real vocabularies. QUIRE_TEST_ROUNDS scales the number of values,
// which is 100,000 in total.
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <set>

#include "support/json_writer.h"
#include "support/rounds.h"
#include "support/scripted_model.h"

namespace quire {
namespace {

namespace json = boost::json;
using test::below;
using test::JsonStyle;
using test::JsonWriter;
using test::one_in;
using test::Random;
using test::ScriptedModel;
using Kind = StructuredOutput::Kind;

constexpr std::uint64_t kNumValues = 100'000;

// Creates a random schema that a value satisfies.
class SchemaMaker {
 public:
  explicit SchemaMaker(Random& random) : random_(random) {}

  json::value make(const json::value& value) {
    if (one_in(random_, 12)) return json::object();
    if (one_in(random_, 12)) return json::object{{"const", value}};
    if (one_in(random_, 12)) return json::object{{"enum", json::array{"other", value, 17, nullptr}}};
    if (one_in(random_, 12)) return json::object{{"anyOf", json::array{json::object{{"type", "boolean"}}, of_kind(value)}}};
    if (one_in(random_, 12)) return json::object{{"description", "x"}, {"allOf", json::array{of_kind(value)}}};
    json::object schema = of_kind(value).get_object();
    if (one_in(random_, 8) && schema.contains("type")) schema["type"] = json::array{schema["type"], "null"};
    return schema;
  }

 private:
  json::value of_kind(const json::value& value) {
    if (value.is_null()) return json::object{{"type", "null"}};
    if (value.is_bool()) return json::object{{"type", "boolean"}};
    if (value.is_string()) return of_text(value.get_string());
    if (value.is_number()) return of_number(value);
    if (value.is_array()) return of_array(value.get_array());
    return of_object(value.get_object());
  }
  json::value of_text(std::string_view text) {
    json::object schema{{"type", "string"}};
    const std::size_t length = test::code_points_of(text).size();
    if (one_in(random_, 3)) schema["maxLength"] = length + below(random_, 3);
    if (one_in(random_, 4)) schema["minLength"] = length - std::min(length, below(random_, 3));
    if (one_in(random_, 6)) schema["pattern"] = one_in(random_, 2) ? "^[^\\x01]*$|\\x01" : std::string("^(.|\\s)*$");
    if (one_in(random_, 6) && !text.empty()) schema["pattern"] = quoted(text);
    return schema;
  }
  // Returns a regular expression that matches the text.
  static std::string quoted(std::string_view text) {
    std::string pattern;
    for (const char c : text) {
      if (std::string_view("\\^$.|?*+()[]{}/-").contains(c)) pattern += '\\';
      if (static_cast<unsigned char>(c) < 0x20)
        pattern += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
      else
        pattern += c;
    }
    return pattern;
  }
  json::value of_number(const json::value& value) {
    const double number = value.to_number<double>();
    json::object schema{{"type", value.is_double() || one_in(random_, 3) ? "number" : "integer"}};
    const double slack = static_cast<double>(below(random_, 1000)) + 1;
    // Above this limit, adding the slack does not move the bound exactly.
    const bool is_exact = std::abs(number) < 1e12;
    if (one_in(random_, 3)) schema["minimum"] = one_in(random_, 2) || !is_exact ? value : json::value(std::floor(number - slack));
    if (one_in(random_, 3)) schema["maximum"] = one_in(random_, 2) || !is_exact ? value : json::value(std::ceil(number + slack));
    if (one_in(random_, 6) && is_exact) schema["exclusiveMinimum"] = std::floor(number - slack);
    return schema;
  }
  json::value of_array(const json::array& items) {
    json::object schema{{"type", "array"}};
    if (one_in(random_, 3)) schema["maxItems"] = items.size() + below(random_, 2);
    if (one_in(random_, 3)) schema["minItems"] = items.size() - std::min<std::size_t>(items.size(), below(random_, 2));
    json::array kinds;
    for (const json::value& item : items) kinds.push_back(make(item));
    if (one_in(random_, 2)) {
      schema["prefixItems"] = kinds;
      schema["items"] = one_in(random_, 2);
    } else if (!kinds.empty()) {
      schema["items"] = json::object{{"anyOf", kinds}};
    }
    return schema;
  }
  json::value of_object(const json::object& fields) {
    json::object properties;
    json::array required;
    bool are_all = true;
    for (const auto& [name, value] : fields) {
      if (one_in(random_, 6)) {
        are_all = false;
        continue;
      }
      properties[name] = make(value);
      if (one_in(random_, 2)) required.emplace_back(name);
    }
    if (one_in(random_, 2)) properties["never_said"] = json::object{{"type", "integer"}};
    json::object schema{{"type", "object"}, {"properties", properties}, {"required", required}};
    if (are_all && one_in(random_, 2)) schema["additionalProperties"] = false;
    return schema;
  }

  Random& random_;
};

struct Case {
  StructuredOutput wanted;
  json::value value;
  std::string text;
};

std::string regex_of_texts() {
  const std::string text = R"("([^"\\\x00-\x1f]|\\(["\\/bfnrt]|u[0-9a-fA-F]{4}))*")";
  return fmt::format(R"(\[([ \t\r\n]*{0}([ \t\r\n]*,[ \t\r\n]*{0})*)?[ \t\r\n]*\])", text);
}
constexpr const char* kLarkOfJson = R"(start: value
value: object | array | STRING | NUMBER | "true" | "false" | "null"
object: "{" WS (pair (COMMA pair)*)? WS "}"
pair: STRING COLON value
array: "[" WS (value (COMMA value)*)? WS "]"
COMMA: /[ \t\r\n]*,[ \t\r\n]*/
COLON: /[ \t\r\n]*:[ \t\r\n]*/
WS: /[ \t\r\n]*/
STRING: /"([^"\\\x00-\x1f]|\\(["\\\/bfnrt]|u[0-9a-fA-F]{4}))*"/
NUMBER: /-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/
)";

Case random_case(Random& random) {
  Case one;
  one.value = test::random_value(random, 3);
  switch (below(random, 8)) {
    case 0:
      one.value = json::object{{"a", one.value}, {"b\u00e9", test::random_value(random, 2)}};
      one.wanted = {.kind = Kind::json_schema, .text = R"({"type":"object"})"};
      break;
    case 1: {
      json::array texts;
      for (std::size_t i = below(random, 4); i > 0; --i) texts.emplace_back(test::random_text(random));
      one.value = texts;
      one.wanted = {.kind = Kind::regex, .text = regex_of_texts()};
      break;
    }
    case 2:
      one.wanted = {.kind = Kind::lark, .text = kLarkOfJson};
      break;
    case 3:
      one.wanted = {
          .kind = Kind::lark,
          .text = "start: \"<answer>\" form \"</answer>\"\nform: %json " + json::serialize(SchemaMaker(random).make(one.value)) + "\n"};
      break;
    default:
      one.wanted = {.kind = Kind::json_schema, .text = json::serialize(SchemaMaker(random).make(one.value))};
  }
  JsonStyle style = JsonStyle::random(random);
  style.spares_letters = one.wanted.text.contains("\"const\"") || one.wanted.text.contains("\"enum\"");
  one.text = JsonWriter(style, random).write(one.value);
  if (one.wanted.text.starts_with("start: \"<answer>\"")) one.text = "<answer>" + one.text + "</answer>";
  return one;
}

json::value parsed(std::string_view text) {
  if (text.starts_with("<answer>") && text.ends_with("</answer>")) text = text.substr(8, text.size() - 17);
  boost::system::error_code failed;
  json::value value = json::parse(text, failed);
  return failed ? json::value("not JSON: " + std::string(text)) : value;
}

class JsonUnderMasks : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!has_structured_output()) GTEST_SKIP() << "built without llguidance";
    const std::string name = GetParam();
    const char* const model = std::getenv("QUIRE_TEST_MODEL");
    const std::string path = name == "default" ? (model == nullptr ? "" : model) : test::vocabs_folder() + "/ggml-vocab-" + name + ".gguf";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "QUIRE_TEST_VOCABS and QUIRE_TEST_MODEL name no such file";
    auto loaded = ScriptedModel::load(path);
    ASSERT_TRUE(loaded) << loaded.error().to_string();
    model_ = *std::move(loaded);
  }
  std::unique_ptr<ScriptedModel> model_;
};

constexpr const char* kVocabularies[] = {"default", "llama-bpe", "qwen2", "gpt-2", "llama-spm", "deepseek-llm", "falcon", "command-r"};

TEST_P(JsonUnderMasks, ParsesToTheValueThatTheModelWrites) {
  const std::uint64_t num_values = rounds_of(kNumValues / std::size(kVocabularies));
  std::map<std::string, GrammarMatcher> kept;  // matchers of the grammars that are not random
  std::set<std::string> spellings;
  std::uint64_t num_same_text = 0, num_tokens = 0;
  int num_wrong = 0;
  for (std::uint64_t round = 0; round < num_values && num_wrong < 10; ++round) {
    Random random(round * 8191 + 1 + static_cast<std::uint64_t>(GetParam()[0]));
    const Case one = random_case(random);
    const bool is_kept = one.wanted.kind != Kind::json_schema || one.wanted.text == R"({"type":"object"})";
    auto found = kept.find(one.wanted.text);
    if (found == kept.end()) {
      auto compiled = model_->compile(one.wanted);
      ASSERT_TRUE(compiled) << compiled.error().to_string() << "\n" << one.wanted.text << "\nround " << round;
      if (!is_kept || kept.size() > 20) kept.clear();
      found = kept.emplace(one.wanted.text, *std::move(compiled)).first;
    }
    const auto pieces = round % 3 == 0   ? ScriptedModel::Pieces::bytes
                        : round % 3 == 1 ? ScriptedModel::Pieces::whole
                                         : ScriptedModel::Pieces::mixed;
    const auto said = model_->say(found->second.clone(), one.text, pieces, round);
    spellings.insert(one.text);
    num_same_text += said.text == one.text ? 1 : 0;
    num_tokens += said.tokens.size();
    if (said.has_ended && said.error.empty() && parsed(said.text) == parsed(one.text)) continue;
    ++num_wrong;
    ADD_FAILURE() << "round " << round << " with " << one.wanted.text << "\n  said: " << one.text << "\n  came: " << said.text
                  << "\n  forced " << said.num_forced << " after " << one.text.substr(0, said.first_forced) << "\n  " << said.error;
  }
  std::cout << GetParam() << ": " << num_values << " values, " << spellings.size() << " distinct spellings, " << num_same_text
            << " came out as the same text, " << num_tokens << " tokens\n";
}

INSTANTIATE_TEST_SUITE_P(Families, JsonUnderMasks, testing::ValuesIn(kVocabularies), [](const auto& instance) {
  std::string name = instance.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

}  // namespace
}  // namespace quire
