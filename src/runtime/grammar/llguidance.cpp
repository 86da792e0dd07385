// Compiles grammars with llguidance, through its C interface. The engine's grammar thread compiles grammars, and the engine thread asks for
// masks; one thread at a time uses a matcher. Schemas come from clients, so their size, depth and cost are bounded. A keyword that cannot
// be enforced is an error that names the keyword; no constraint is ignored silently.
#include <fmt/format.h>
#include <llguidance.h>

#include <algorithm>
#include <array>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "quire/text/tokenizer.h"
#include "runtime/grammar/grammar_matcher.h"
#include "runtime/grammar/schema_rules.h"

namespace quire {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxGrammarBytes = std::size_t{4} << 20;
constexpr std::size_t kMaxErrorBytes = 1000;
constexpr std::size_t kMaxSchemaDepth = 128;  // the limit of serde_json
// Grammars up to this size in bytes are not checked before they are compiled; the size is enough for a schema of some hundred properties.
constexpr std::size_t kMaxUnchecked = std::size_t{64} << 10;
// Maximum number of lexer states, each of one or two KB.
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

// Returns one line of llguidance's message, which may quote a whole grammar. The line is cut between characters.
std::string shorten(std::string_view message) {
  std::string_view line = message.substr(0, message.find('\n'));
  // Removes the position, which refers to a grammar that the client did not write.
  if (const std::size_t at = line.find("failed to compile JSON schema: "); at != std::string_view::npos)
    line.remove_prefix(at + std::string_view("failed to compile JSON schema: ").size());
  std::string text(line.substr(0, kMaxErrorBytes));
  while (text.size() < line.size() && !text.empty() && (static_cast<unsigned char>(line[text.size()]) & 0xC0U) == 0x80U) text.pop_back();
  // The last line names the problem of a regular expression.
  const std::size_t reason = message.rfind("\nerror: ");
  if (text.ends_with("regex parse error:") && reason != std::string_view::npos) {
    const std::string_view last = message.substr(reason + 8);
    text += " " + std::string(last.substr(0, std::min(last.find('\n'), kMaxErrorBytes)));
  }
  return text;
}

std::unexpected<Error> refuse(std::string message, std::string remedy = "change the grammar or the schema") {
  return fail(ErrorCode::invalid_argument, "structured_output", std::move(message), std::move(remedy));
}

// Adds the keyword to messages that do not name it.
std::string with_keyword(std::string message) {
  if (message.contains("is not present in a registry") || message.starts_with("Anchor ")) return "$ref: " + message;
  if (message.starts_with("patternProperty ")) return "patternProperties: " + message;
  return message;
}

Result<json::value> schema_value(const std::string& text) {
  boost::system::error_code failed;
  json::value value = json::parse(text, failed, {}, {.max_depth = kMaxSchemaDepth});
  if (failed) return refuse("the schema is not valid JSON: " + failed.message(), "send a JSON schema");
  if (!value.is_object() && !value.is_bool()) return refuse("the schema is neither an object nor a boolean", "send a JSON schema");
  if (value.is_object()) value.get_object().erase("x-guidance");
  return value;
}

// Returns the grammar that llguidance compiles. Ignores a schema's "x-guidance", with which a client could drop constraints.
Result<std::string> lark_of(const StructuredOutput& wanted) {
  if (wanted.kind == StructuredOutput::Kind::lark) return with_schema_rules(wanted.text);
  if (wanted.kind == StructuredOutput::Kind::regex) return wanted.text;
  const auto value = schema_value(wanted.text);
  return value ? grammar_of_schema(*value) : std::unexpected(value.error());
}

// The vocabulary as llguidance needs it, created once per model and shared by all grammars. It must outlive every matcher, so each matcher
// holds a reference.
class Vocabulary {
 public:
  Vocabulary(std::unique_ptr<const Tokenizer> tokenizer, std::uint32_t vocab_size) : tokenizer_(std::move(tokenizer)) {
    std::vector<std::uint32_t> sizes(vocab_size);
    std::string bytes;
    for (std::uint32_t i = 0; i < vocab_size; ++i) {
      const std::size_t before = bytes.size();
      const auto token = static_cast<TokenId>(i);
      // A leading 0xFF means a special token: grammars name it as <|name|>.
      if (tokenizer_->is_special(token)) bytes += '\xFF';
      bytes += tokenizer_->token_bytes(token);
      sizes[i] = static_cast<std::uint32_t>(bytes.size() - before);
    }
    make(bytes, sizes, tokenizer_->eog());
  }
  // Creates a vocabulary of all bytes and an end-of-generation token, which is enough to check whether a grammar compiles.
  Vocabulary() {
    constexpr std::uint32_t kNumBytes = 256;
    std::string bytes;
    for (std::uint32_t byte = 0; byte < kNumBytes; ++byte) bytes += static_cast<char>(byte);
    std::vector<std::uint32_t> sizes(kNumBytes, 1);
    bytes += "\xFF<end>";
    sizes.push_back(6);
    make(bytes, sizes, std::array{static_cast<TokenId>(kNumBytes)});
  }

  [[nodiscard]] const LlgTokenizer* handle() const { return handle_.get(); }
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  void make(const std::string& bytes, const std::vector<std::uint32_t>& sizes, std::span<const TokenId> eog) {
    const std::vector<std::uint32_t> ends(eog.begin(), eog.end());
    LlgTokenizerInitV2 init{};
    init.struct_size = sizeof(init);
    init.vocab_size = static_cast<std::uint32_t>(sizes.size());
    init.tok_eos = ends.empty() ? std::numeric_limits<std::uint32_t>::max() : ends.front();
    init.token_lens = sizes.data();
    init.token_bytes = reinterpret_cast<const std::uint8_t*>(bytes.data());
    init.tokenize_assumes_string = true;
    init.tokenize_fn = tokenizer_ == nullptr ? encode_bytes : encode;
    init.tokenize_user_data = tokenizer_.get();
    init.tok_eos_extra = ends.empty() ? nullptr : ends.data() + 1;
    init.tok_eos_extra_count = ends.empty() ? 0 : static_cast<std::uint32_t>(ends.size() - 1);
    std::array<char, 512> problem{};
    handle_.reset(llg_new_tokenizer_v2(&init, problem.data(), problem.size()));
    if (handle_ == nullptr) problem_ = problem.data();
  }
  static std::size_t encode_bytes(const void*, const std::uint8_t* bytes, std::size_t size, std::uint32_t* tokens,
                                  std::size_t most_tokens) {
    std::copy_n(bytes, std::min(size, most_tokens), tokens);
    return size;
  }
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
      return fail(ErrorCode::too_large, "structured_output", "the grammar is larger than 4 MiB", "send a smaller grammar");
    // The C interface reads the text up to the first NUL.
    if (wanted.text.contains('\0')) return refuse("the grammar contains a NUL byte", "remove it");
    const Result<std::string> text = lark_of(wanted);
    if (!text) return std::unexpected(text.error());
    LlgConstraintInit init{};
    llg_constraint_init_set_defaults(&init, vocabulary_->handle());
    init.log_buffer_level = init.log_stderr_level = 0;
    init.limits.max_lexer_states = kMaxLexerStates;
    MatcherHandle matcher(llg_new_matcher(&init, wanted.kind == StructuredOutput::Kind::regex ? "regex" : "lark", text->c_str()));
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
    return fail(ErrorCode::unsupported, "structured_output", "is not supported with this vocabulary: " + vocabulary->problem(),
                "use another model, or send no output format");
  return std::make_shared<const Compiler>(std::move(vocabulary));
}

bool has_structured_output() {
  return true;
}

Result<void> check_schema(const std::string& schema, bool is_loose) {
  auto value = schema_value(schema);
  if (!value) return std::unexpected(value.error());
  if (is_loose && value->is_object()) value->get_object()["x-guidance"] = json::object{{"lenient", true}};
  const auto grammar = grammar_of_schema(*value);
  if (!grammar) return std::unexpected(grammar.error());
  // A grammar without %json always compiles, unless it is large.
  if (!grammar->contains("%json") && grammar->size() < kMaxUnchecked) return {};
  // A vocabulary of bytes is enough for this check.
  const Vocabulary bytes;
  LlgConstraintInit init{};
  llg_constraint_init_set_defaults(&init, bytes.handle());
  init.log_buffer_level = init.log_stderr_level = 0;
  init.limits.max_lexer_states = kMaxLexerStates;
  std::string problem(4 * kMaxErrorBytes, '\0');
  if (llg_validate_grammar(&init, "lark", grammar->c_str(), problem.data(), problem.size()) >= 0) return {};
  return refuse(with_keyword(shorten(problem.substr(0, problem.find('\0')))));
}

}  // namespace quire
