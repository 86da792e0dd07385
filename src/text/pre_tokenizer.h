#pragma once
// Cuts a text into the pieces that byte-level BPE merges within.
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "text/regex.h"

namespace quire {

// The expressions behind a name in tokenizer.ggml.pre, to be applied in turn; tokenizer.json spells them out. "" has none: the text is one
// piece. Error `unsupported`: a name that is not known.
Result<std::vector<std::string>> pre_tokenizer_by_name(std::string_view name);

// Immutable after create.
class PreTokenizer {
 public:
  using Visit = std::function<bool(std::string_view piece)>;  // whether to go on

  // Errors: `unsupported`, an expression that the engine cannot read.
  static Result<PreTokenizer> create(const std::vector<std::string>& patterns);

  // Visits the pieces of `text` (valid UTF-8) in order; together they are the text. Each pattern cuts the pieces of the one before it into
  // its matches and what lies between them (Split with behavior Isolated of Hugging Face); an empty match cuts where it stands. Errors: see
  // Regex::find.
  [[nodiscard]] Result<void> for_each_piece(std::string_view text, const Visit& visit) const;

 private:
  explicit PreTokenizer(std::vector<Regex> regexes) : regexes_(std::move(regexes)) {}
  [[nodiscard]] Result<bool> cut(std::size_t stage, std::string_view text, const Visit& visit) const;

  std::vector<Regex> regexes_;
};

}  // namespace quire
