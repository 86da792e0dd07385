#pragma once
// Converts text to token ids and back. Immutable after create(): all methods may be called from several threads at the same time.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/api.h"
#include "quire/base/cancellation_point.h"
#include "quire/base/error.h"
#include "quire/base/ids.h"
#include "quire/base/model_info.h"

namespace quire {

struct EncodeOptions {
  bool add_special = true;     // add beginning- and end-of-sequence ids, if the model uses them
  bool parse_special = false;  // control tokens in the text become their ids; user-defined tokens always become their ids
  std::size_t max_tokens = std::numeric_limits<std::size_t>::max();  // a text with more tokens is an error
  // Called between parts of a text; null: never called. encode() lets its exceptions through.
  const CancellationPoint* cancellation = nullptr;
};

class QUIRE_API Tokenizer {
 public:
  // Creates a tokenizer. Errors: `unsupported` (this build does not support the algorithm or the pre-tokenizer; the message names it),
  // `corrupt` (the lists of `spec` contradict each other).
  static Result<std::unique_ptr<const Tokenizer>> create(const TokenizerSpec& spec);

  virtual ~Tokenizer() = default;

  // Returns the token ids that Hugging Face `tokenizers` returns for the text. Bytes that are not UTF-8 become U+FFFD, as with Python's
  // bytes.decode(errors="replace"). O(n log n). Error: `too_large`: the text has 1 GiB or more, or gives more than options.max_tokens ids.
  [[nodiscard]] virtual Result<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options = {}) const = 0;

  // Returns the text of the tokens as valid UTF-8: invalid bytes become U+FFFD. Ids outside the vocabulary are ignored. SentencePiece's
  // space before the first word is removed. With `skip_special`, control tokens are omitted.
  [[nodiscard]] virtual std::string decode(std::span<const TokenId> tokens, bool skip_special = true) const = 0;

  // Returns the exact bytes of a token, possibly only part of a character; empty for an id outside the vocabulary. The view is valid as
  // long as the tokenizer.
  [[nodiscard]] virtual std::string_view token_bytes(TokenId token) const = 0;

  // Returns the size in bytes of the longest token.
  [[nodiscard]] virtual std::size_t max_token_bytes() const = 0;

  // Returns the id of the token with this text ("<|im_end|>", " the"); nullopt: no token has the text.
  [[nodiscard]] virtual std::optional<TokenId> find(std::string_view token_text) const = 0;

  // Returns whether the token is a control token or the unknown token; these tokens are not part of an answer's text.
  [[nodiscard]] virtual bool is_special(TokenId token) const = 0;

  [[nodiscard]] virtual std::uint32_t vocab_size() const = 0;
  [[nodiscard]] virtual std::optional<TokenId> bos() const = 0;
  [[nodiscard]] virtual std::optional<TokenId> eos() const = 0;
  // Returns all ids that end a generation, in ascending order.
  [[nodiscard]] virtual std::span<const TokenId> eog() const = 0;
  // Returns whether decode() removes the first space of a text (SentencePiece); see DetokenizerOptions::start_of_text.
  [[nodiscard]] virtual bool strips_leading_space() const = 0;
};

}  // namespace quire
