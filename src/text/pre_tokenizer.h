#pragma once
// Splits a text into pieces. Byte-level BPE merges only within one piece.
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "text/regex.h"

namespace quire {

// Returns the expressions for a name in tokenizer.ggml.pre, which must be applied in order. (A tokenizer.json contains the expressions
// themselves.) Returns no expressions for "": the text is then one piece. Error `unsupported`: the name is unknown.
Result<std::vector<std::string>> pre_tokenizer_by_name(std::string_view name);

// Objects are immutable after create().
class PreTokenizer {
 public:
  using Visit = std::function<bool(std::string_view piece)>;  // returns whether to continue

  // Error `unsupported`: the regex engine cannot compile an expression.
  static Result<PreTokenizer> create(const std::vector<std::string>& patterns);

  // Visits the pieces of `text` (valid UTF-8) in order; concatenated, they equal the text. Each pattern splits the pieces of the previous
  // pattern into matches and the text between matches (Split with behavior Isolated of Hugging Face). An empty match splits at its
  // position. Errors: see Regex::find().
  [[nodiscard]] Result<void> for_each_piece(std::string_view text, const Visit& visit) const;

 private:
  explicit PreTokenizer(std::vector<Regex> regexes) : regexes_(std::move(regexes)) {}
  [[nodiscard]] Result<bool> cut(std::size_t stage, std::string_view text, const Visit& visit) const;

  std::vector<Regex> regexes_;
};

}  // namespace quire
