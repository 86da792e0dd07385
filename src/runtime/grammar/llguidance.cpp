// Grammars by llguidance, through its C interface. Compiled on the engine's grammar thread, asked for masks on the engine thread; one
// matcher is used by one thread at a time. Schemas come from clients: their size, depth and cost are bounded, and what cannot be held to is
// an error that names the keyword, never a constraint that silently does not hold.
#include <fmt/format.h>
#include <llguidance.h>

#include <algorithm>
#include <array>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "quire/text/tokenizer.h"
#include "runtime/grammar/grammar_matcher.h"

namespace quire {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxGrammarBytes = std::size_t{4} << 20;
constexpr std::size_t kMaxErrorBytes = 1000;
constexpr std::size_t kMaxSchemaDepth = 128;  // serde_json's
// A count of items or characters; larger numbers are left to the library to refuse.
constexpr double kMostCounted = 1e9;
// Of one object: compiling takes the square of it, 3,000 half a second, and other grammars wait.
constexpr std::size_t kMaxProperties = 3000;
// A state of a lexer takes one or two KB.
constexpr std::size_t kMaxLexerStates = 50'000;

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using TokenizerHandle = std::unique_ptr<LlgTokenizer, Freed<llg_free_tokenizer>>;
using MatcherHandle = std::unique_ptr<LlgMatcher, Freed<llg_free_matcher>>;

const char* name_of(StructuredOutput::Kind kind) {
  switch (kind) {
    case StructuredOutput::Kind::json_schema:
      return "json_schema";
    case StructuredOutput::Kind::regex:
      return "regex";
    case StructuredOutput::Kind::lark:
      return "lark";
  }
  return "";
}

// The first line of what llguidance says, which may quote a whole grammar.
// Cut at a character's border.
std::string shorten(std::string_view message) {
  message = message.substr(0, message.find('\n'));
  std::size_t size = std::min(message.size(), kMaxErrorBytes);
  while (size < message.size() && size > 0 && (static_cast<unsigned char>(message[size]) & 0xC0U) == 0x80U) --size;
  return std::string(message.substr(0, size));
}

std::unexpected<Error> refuse(std::string message, std::string remedy = {}) {
  return fail(ErrorCode::invalid_argument, "structured_output", std::move(message), std::move(remedy));
}

// What it does not say by itself: which keyword it is about.
std::string with_keyword(std::string message) {
  if (message.contains("is not present in a registry") || message.starts_with("Anchor ")) return "$ref: " + message;
  if (message.starts_with("patternProperty ")) return "patternProperties: " + message;
  return message;
}

// 2.0 is an integer in JSON Schema; llguidance wants it written as one.
void write_counts(json::value& value) {
  static constexpr std::string_view kCounts[] = {"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"};
  if (value.is_array()) std::ranges::for_each(value.get_array(), write_counts);
  if (!value.is_object()) return;
  for (auto& [key, inner] : value.get_object()) {
    const std::string_view name(key.data(), key.size());
    if (name == "const" || name == "enum" || name == "default" || name == "examples") continue;
    const double* number = inner.if_double();
    if (number == nullptr || std::ranges::find(kCounts, name) == std::end(kCounts))
      write_counts(inner);
    else if (*number >= 0 && *number <= kMostCounted && std::trunc(*number) == *number)
      inner = static_cast<std::uint64_t>(*number);
  }
}

bool has_too_many_properties(const json::value& value) {
  if (const json::array* items = value.if_array()) return std::ranges::any_of(*items, has_too_many_properties);
  const json::object* object = value.if_object();
  if (object == nullptr) return false;
  const json::value* properties = object->if_contains("properties");
  if (properties != nullptr && properties->is_object() && properties->get_object().size() > kMaxProperties) return true;
  return std::ranges::any_of(*object, [](const json::key_value_pair& field) { return has_too_many_properties(field.value()); });
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool names_beyond_ascii(const json::value& value) {
  if (const json::array* items = value.if_array()) return std::ranges::any_of(*items, names_beyond_ascii);
  const json::object* object = value.if_object();
  if (object == nullptr) return false;
  const json::value* properties = object->if_contains("properties");
  const auto is_beyond = [](const json::key_value_pair& field) { return !is_ascii(field.key()); };
  if (properties != nullptr && properties->is_object() && std::ranges::any_of(properties->get_object(), is_beyond)) return true;
  return std::ranges::any_of(*object, [](const json::key_value_pair& field) { return names_beyond_ascii(field.value()); });
}

// How JSON is written is not the client's to say: its own "x-guidance" could let constraints go that cannot be held.
Result<std::string> own_options(const std::string& schema) {
  boost::system::error_code failed;
  json::value value = json::parse(schema, failed, {}, {.max_depth = kMaxSchemaDepth});
  if (failed) return refuse("the schema is no JSON: " + failed.message(), "send a JSON schema");
  if (value.is_bool()) return schema;
  if (!value.is_object()) return refuse("the schema is neither an object nor a boolean", "send a JSON schema");
  value.get_object().erase("x-guidance");
  if (has_too_many_properties(value))
    return refuse(fmt::format("'properties' of one object are more than {}", kMaxProperties), "send a smaller schema");
  write_counts(value);
  // The library takes "a\u00f1o" for another property than "año", which may have any value; whoever reads the answer does not.
  if (names_beyond_ascii(value)) value.get_object().emplace("x-guidance", json::object{{"json_allowed_escapes", R"(nrbtf\")"}});
  return json::serialize(value);
}

// The tokens as llguidance wants them: once per model, shared by all grammars. It must outlive every matcher, which holds it.
class Vocabulary {
 public:
  Vocabulary(std::unique_ptr<const Tokenizer> tokenizer, std::uint32_t vocab_size) : tokenizer_(std::move(tokenizer)) {
    std::vector<std::uint32_t> sizes(vocab_size);
    std::string bytes;
    for (std::uint32_t i = 0; i < vocab_size; ++i) {
      const std::size_t before = bytes.size();
      const auto token = static_cast<TokenId>(i);
      // A leading 0xFF says that it is no text: grammars name it as <|name|>.
      if (tokenizer_->is_special(token)) bytes += '\xFF';
      bytes += tokenizer_->token_bytes(token);
      sizes[i] = static_cast<std::uint32_t>(bytes.size() - before);
    }
    const std::span<const TokenId> eog = tokenizer_->eog();
    const std::vector<std::uint32_t> ends(eog.begin(), eog.end());
    LlgTokenizerInitV2 init{};
    init.struct_size = sizeof(init);
    init.vocab_size = vocab_size;
    init.tok_eos = ends.empty() ? std::numeric_limits<std::uint32_t>::max() : ends.front();
    init.token_lens = sizes.data();
    init.token_bytes = reinterpret_cast<const std::uint8_t*>(bytes.data());
    init.tokenize_assumes_string = true;
    init.tokenize_fn = encode;
    init.tokenize_user_data = tokenizer_.get();
    init.tok_eos_extra = ends.empty() ? nullptr : ends.data() + 1;
    init.tok_eos_extra_count = ends.empty() ? 0 : static_cast<std::uint32_t>(ends.size() - 1);
    std::array<char, 512> problem{};
    handle_.reset(llg_new_tokenizer_v2(&init, problem.data(), problem.size()));
    if (handle_ == nullptr) problem_ = problem.data();
  }

  [[nodiscard]] const LlgTokenizer* handle() const { return handle_.get(); }
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  static std::size_t encode(const void* tokenizer, const std::uint8_t* bytes, std::size_t size, std::uint32_t* tokens,
                            std::size_t most_tokens) {
    const auto encoded = static_cast<const Tokenizer*>(tokenizer)->encode({reinterpret_cast<const char*>(bytes), size},
                                                                          {.add_special = false, .parse_special = false});
    if (!encoded) return 0;
    std::copy_n(encoded->begin(), std::min(encoded->size(), most_tokens), tokens);
    return encoded->size();
  }

  std::unique_ptr<const Tokenizer> tokenizer_;
  TokenizerHandle handle_;
  std::string problem_;
};

}  // namespace

struct GrammarMatcher::State {
  std::shared_ptr<const Vocabulary> vocabulary;  // outlives the matcher
  MatcherHandle matcher;
};

GrammarMatcher::GrammarMatcher(std::unique_ptr<State> state) : state_(std::move(state)) {}
GrammarMatcher::~GrammarMatcher() = default;
GrammarMatcher::GrammarMatcher(GrammarMatcher&&) noexcept = default;
GrammarMatcher& GrammarMatcher::operator=(GrammarMatcher&&) noexcept = default;

bool GrammarMatcher::fill(std::span<std::uint32_t> allowed) {
  return llg_matcher_compute_mask_into(state_->matcher.get(), allowed.data(), allowed.size_bytes()) == 0;
}

bool GrammarMatcher::accept(TokenId token) {
  return llg_matcher_consume_token(state_->matcher.get(), static_cast<std::uint32_t>(token)) == 0;
}

std::uint32_t GrammarMatcher::count_valid(std::span<const TokenId> tokens) {
  static_assert(sizeof(TokenId) == sizeof(std::uint32_t));
  const std::int32_t count =
      llg_matcher_validate_tokens(state_->matcher.get(), reinterpret_cast<const std::uint32_t*>(tokens.data()), tokens.size());
  return count > 0 ? static_cast<std::uint32_t>(count) : 0;
}

bool GrammarMatcher::rollback(std::uint32_t num_tokens) {
  return llg_matcher_rollback(state_->matcher.get(), num_tokens) == 0;
}

bool GrammarMatcher::is_over() const {
  return llg_matcher_is_stopped(state_->matcher.get());
}

std::string GrammarMatcher::error() const {
  const char* const error = llg_matcher_get_error(state_->matcher.get());
  return error != nullptr ? shorten(error) : std::string();
}

GrammarMatcher GrammarMatcher::clone() const {
  return GrammarMatcher(std::make_unique<State>(state_->vocabulary, MatcherHandle(llg_clone_matcher(state_->matcher.get()))));
}

namespace {

class Compiler final : public GrammarCompiler {
 public:
  explicit Compiler(std::shared_ptr<const Vocabulary> vocabulary) : vocabulary_(std::move(vocabulary)) {}

  [[nodiscard]] Result<GrammarMatcher> compile(const StructuredOutput& wanted) const override {
    if (wanted.text.size() > kMaxGrammarBytes)
      return fail(ErrorCode::too_large, "structured_output", "the grammar has more than 4 MiB", "send a smaller one");
    // The C interface takes the text up to the first NUL.
    if (wanted.text.contains('\0')) return refuse("the grammar holds a NUL byte", "remove it");
    Result<std::string> text = wanted.kind == StructuredOutput::Kind::json_schema ? own_options(wanted.text) : wanted.text;
    if (!text) return std::unexpected(std::move(text.error()));
    LlgConstraintInit init{};
    llg_constraint_init_set_defaults(&init, vocabulary_->handle());
    init.log_buffer_level = init.log_stderr_level = 0;
    init.limits.max_lexer_states = kMaxLexerStates;
    MatcherHandle matcher(llg_new_matcher(&init, name_of(wanted.kind), text->c_str()));
    if (const char* const error = llg_matcher_get_error(matcher.get()); error != nullptr) return refuse(with_keyword(shorten(error)));
    return GrammarMatcher(std::make_unique<GrammarMatcher::State>(vocabulary_, std::move(matcher)));
  }

 private:
  std::shared_ptr<const Vocabulary> vocabulary_;
};

}  // namespace

Result<std::shared_ptr<const GrammarCompiler>> GrammarCompiler::create(const TokenizerSpec& spec, std::uint32_t vocab_size) {
  auto tokenizer = Tokenizer::create(spec);
  if (!tokenizer) return std::unexpected(std::move(tokenizer.error()));
  auto vocabulary = std::make_shared<const Vocabulary>(std::move(*tokenizer), vocab_size);
  if (vocabulary->handle() == nullptr)
    return fail(ErrorCode::unsupported, "structured_output", "is not possible with this vocabulary: " + vocabulary->problem());
  return std::make_shared<const Compiler>(std::move(vocabulary));
}

bool has_structured_output() {
  return true;
}

}  // namespace quire
