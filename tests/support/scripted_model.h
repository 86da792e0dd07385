#pragma once
// A model that writes a given text, token by token, under the real masks of a grammar. If the mask does not allow the next token, it writes
// a shorter piece of its text, or an allowed token. The output then shows where the grammar changes the text.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quire/text/tokenizer.h"
#include "runtime/grammar/grammar_matcher.h"
#include "text/vocab/load.h"

namespace quire::test {

class ScriptedModel {
 public:
  // How a text is split into tokens: by the vocabulary's encoder, into single bytes, or into pieces of random length.
  enum class Pieces : std::uint8_t { whole, bytes, mixed };

  struct Said {
    std::string text;
    bool has_ended = false;            // the grammar allowed the end where the text ends
    std::size_t num_split = 0;         // masked tokens that were replaced by shorter ones
    std::size_t num_forced = 0;        // tokens that are not part of the text
    std::size_t first_forced = 0;      // bytes of the text before the first forced token
    std::string error{};               // the matcher's error if it had no mask
    std::vector<TokenId> tokens = {};  // all accepted tokens
  };

  static Result<std::unique_ptr<ScriptedModel>> load(const std::string& path) {
    auto spec = load_spec(path);
    if (!spec) return std::unexpected(spec.error());
    return create(*std::move(spec));
  }
  static Result<std::unique_ptr<ScriptedModel>> create(TokenizerSpec spec) {
    spec.add_space_prefix = false;  // texts may begin in the middle of an answer
    if (spec.eog.empty() && spec.eos) spec.eog = {*spec.eos};
    auto tokenizer = Tokenizer::create(spec);
    if (!tokenizer) return std::unexpected(tokenizer.error());
    auto compiler = GrammarCompiler::create(spec, static_cast<std::uint32_t>(spec.tokens.size()));
    if (!compiler) return std::unexpected(compiler.error());
    return std::unique_ptr<ScriptedModel>(new ScriptedModel(*std::move(tokenizer), *std::move(compiler)));
  }

  [[nodiscard]] const Tokenizer& tokenizer() const { return *tokenizer_; }
  [[nodiscard]] Result<GrammarMatcher> compile(const StructuredOutput& wanted) const { return compiler_->compile(wanted); }

  // `matcher` is at the beginning of the answer; clone() it for another text. Control tokens in the text become single tokens.
  [[nodiscard]] Said say(GrammarMatcher matcher, std::string_view text, Pieces pieces = Pieces::whole, std::uint64_t seed = 1) const {
    Said said;
    std::mt19937_64 random(seed);
    std::vector<TokenId> natural = split(text, pieces, random);
    std::reverse(natural.begin(), natural.end());
    std::vector<std::uint32_t> mask((tokenizer_->vocab_size() + 31) / 32);
    std::size_t at = 0;
    while (!matcher.is_over() && said.tokens.size() < kMaxTokens + 4 * text.size()) {
      if (!matcher.fill(mask)) {
        said.error = matcher.error();
        return said;
      }
      if (at == text.size() && allows_end(mask)) break;
      TokenId token = 0;
      if (at < text.size() && allows(mask, natural.back())) {
        token = natural.back();
        natural.pop_back();
        at += said_bytes(token).size();
      } else if (const TokenId piece = longest_piece(mask, text.substr(at)); piece >= 0) {
        token = piece;
        ++said.num_split;
        at += said_bytes(token).size();
        natural = split(text.substr(at), pieces, random);
        std::reverse(natural.begin(), natural.end());
      } else {
        token = any_token(mask);
        if (token < 0 || said.num_forced == kMaxForced) return said;
        if (said.num_forced++ == 0) said.first_forced = at;
      }
      if (!matcher.accept(token)) {
        said.error = "a token that the mask allows is not accepted";
        return said;
      }
      said.tokens.push_back(token);
      said.text += said_bytes(token);
    }
    said.has_ended = at == text.size();
    return said;
  }

 private:
  static constexpr std::size_t kMaxTokens = 500;
  static constexpr std::size_t kMaxForced = 300;

  ScriptedModel(std::unique_ptr<const Tokenizer> tokenizer, std::shared_ptr<const GrammarCompiler> compiler)
      : tokenizer_(std::move(tokenizer)), compiler_(std::move(compiler)) {
    bytes_.fill(-1);
    for (TokenId token = 0; token < static_cast<TokenId>(tokenizer_->vocab_size()); ++token) {
      const std::string_view bytes = tokenizer_->token_bytes(token);
      if (bytes.empty() || tokenizer_->is_special(token)) continue;
      if (bytes.size() == 1) bytes_[static_cast<unsigned char>(bytes.front())] = token;
      by_text_.emplace_back(bytes, token);
    }
    std::ranges::sort(by_text_);
  }

  [[nodiscard]] static bool allows(std::span<const std::uint32_t> mask, TokenId token) {
    return (mask[static_cast<std::size_t>(token) / 32] >> (static_cast<std::size_t>(token) % 32) & 1U) != 0;
  }
  [[nodiscard]] bool allows_end(std::span<const std::uint32_t> mask) const {
    return std::ranges::any_of(tokenizer_->eog(), [&](TokenId token) { return allows(mask, token); });
  }
  [[nodiscard]] std::string_view said_bytes(TokenId token) const { return tokenizer_->token_bytes(token); }

  // Returns tokens whose bytes are the text.
  [[nodiscard]] std::vector<TokenId> split(std::string_view text, Pieces pieces, std::mt19937_64& random) const {
    if (pieces == Pieces::whole) {
      if (auto encoded = tokenizer_->encode(text, {.add_special = false, .parse_special = true})) {
        std::string joined;
        for (const TokenId token : *encoded) joined += said_bytes(token);
        if (joined == text) return *std::move(encoded);
      }
    }
    std::vector<TokenId> tokens;
    while (!text.empty()) {
      TokenId token = bytes_[static_cast<unsigned char>(text.front())];
      if (pieces != Pieces::bytes || token < 0)
        if (const TokenId piece = piece_of(text.substr(0, pieces == Pieces::mixed ? 1 + random() % 6 : text.size())); piece >= 0)
          token = piece;
      if (token < 0) return tokens;  // the vocabulary cannot write this text
      tokens.push_back(token);
      text.remove_prefix(said_bytes(token).size());
    }
    return tokens;
  }
  [[nodiscard]] TokenId find(std::string_view bytes) const {
    const auto found = std::ranges::lower_bound(by_text_, bytes, {}, &std::pair<std::string_view, TokenId>::first);
    return found != by_text_.end() && found->first == bytes ? found->second : -1;
  }
  // Returns the longest token that is a prefix of the text, or -1.
  [[nodiscard]] TokenId piece_of(std::string_view text) const {
    for (std::size_t size = std::min(text.size(), tokenizer_->max_token_bytes()); size > 0; --size)
      if (const TokenId token = find(text.substr(0, size)); token >= 0) return token;
    return -1;
  }
  [[nodiscard]] TokenId longest_piece(std::span<const std::uint32_t> mask, std::string_view text) const {
    for (std::size_t size = std::min(text.size(), tokenizer_->max_token_bytes()); size > 0; --size)
      if (const TokenId token = find(text.substr(0, size)); token >= 0 && allows(mask, token)) return token;
    if (text.empty()) return -1;
    const TokenId byte = bytes_[static_cast<unsigned char>(text.front())];
    return byte >= 0 && allows(mask, byte) ? byte : -1;
  }
  // Returns the shortest token that the mask allows. -1: no allowed token has text.
  [[nodiscard]] TokenId any_token(std::span<const std::uint32_t> mask) const {
    TokenId best = -1;
    for (TokenId token = 0; token < static_cast<TokenId>(tokenizer_->vocab_size()); ++token)
      if (allows(mask, token) && !said_bytes(token).empty() && (best < 0 || said_bytes(token).size() < said_bytes(best).size()))
        best = token;
    return best;
  }

  std::unique_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const GrammarCompiler> compiler_;
  std::array<TokenId, 256> bytes_{};
  std::vector<std::pair<std::string_view, TokenId>> by_text_;  // views of the tokenizer's texts
};

// Returns the folder with real vocabularies, or an empty string.
inline std::string vocabs_folder() {
  const char* folder = std::getenv("QUIRE_TEST_VOCABS");
  return folder == nullptr ? "" : folder;
}

}  // namespace quire::test
