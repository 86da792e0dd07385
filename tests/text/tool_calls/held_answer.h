#pragma once
// Runs an answer token by token through the grammar that constrains it.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/grammar/grammar_matcher.h"
#include "text/sample_vocabulary.h"
#include "text/tool_calls/call_format.h"
#include "text/tool_calls/call_grammar.h"

namespace quire {

// Tokens are bytes; optionally the format's delimiters are control tokens.
class HeldAnswers {
 public:
  HeldAnswers(const CallFormat& format, bool has_control_tokens) {
    TokenizerSpec spec = test::byte_level_spec({});
    end_ = *spec.eos;
    spec.eog = {end_};
    const std::vector<std::string> marks = format.delimiters();
    for (const std::string& mark : marks)
      if (has_control_tokens && !token_of(mark)) marks_.emplace_back(mark, add(spec, mark));
    compiler_ = GrammarCompiler::create(spec, static_cast<std::uint32_t>(spec.tokens.size()));
  }

  // Returns the part of the text that the grammar accepts; the whole text must be followed by the end of an answer. Returns an error if
  // there is no grammar.
  Result<std::string> taken(const std::string& grammar, std::string_view text) const {
    if (!compiler_) return std::unexpected(compiler_.error());
    auto matcher = (*compiler_)->compile({.kind = StructuredOutput::Kind::lark, .text = grammar});
    if (!matcher) return std::unexpected(matcher.error());
    for (std::size_t at = 0; at < text.size();) {
      const auto [token, size] = next(text.substr(at));
      if (!matcher->accept(token)) return std::string(text.substr(0, at));
      at += size;
    }
    if (!matcher->is_over() && !matcher->accept(end_)) return std::string(text) + " and not the end";
    return std::string(text);
  }
  [[nodiscard]] std::optional<TokenId> token_of(std::string_view text) const {
    const auto mark = std::ranges::find(marks_, text, &std::pair<std::string, TokenId>::first);
    return mark != marks_.end() ? std::optional(mark->second) : std::nullopt;
  }

 private:
  static TokenId add(TokenizerSpec& spec, const std::string& mark) {
    spec.tokens.push_back(mark);
    spec.types.push_back(TokenizerSpec::TokenType::control);
    return static_cast<TokenId>(spec.tokens.size() - 1);
  }
  [[nodiscard]] std::pair<TokenId, std::size_t> next(std::string_view text) const {
    for (const auto& [mark, token] : marks_)
      if (text.starts_with(mark)) return {token, mark.size()};
    return {static_cast<TokenId>(static_cast<unsigned char>(text.front())), 1};
  }

  TokenId end_ = 0;
  std::vector<std::pair<std::string, TokenId>> marks_;
  Result<std::shared_ptr<const GrammarCompiler>> compiler_ = fail(ErrorCode::unsupported, "", "");
};

}  // namespace quire
