#pragma once
// Text to token ids and back. Immutable after create: every member may be called from any thread, and from several at once.
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
#include "quire/base/error.h"
#include "quire/base/ids.h"
#include "quire/base/model_info.h"

namespace quire {

struct EncodeOptions {
  bool add_special = true;     // beginning- and end-of-sequence ids, where the model wants them
  bool parse_special = false;  // control tokens written out in the text become their ids; user-defined ones always do
  std::size_t max_tokens = std::numeric_limits<std::size_t>::max();  // more are an error, found soon after they are there
};

class QUIRE_API Tokenizer {
 public:
  // Errors: `unsupported` (an algorithm or pre-tokenizer this build does not know, named), `corrupt` (lists that contradict each other).
  static Result<std::unique_ptr<const Tokenizer>> create(const TokenizerSpec& spec);

  virtual ~Tokenizer() = default;

  // The ids that Hugging Face `tokenizers` gives. Bytes that are not UTF-8 count as U+FFFD, as bytes.decode(errors="replace") of Python
  // has them. O(n log n). Errors: `too_large`: the text has 1 GiB or more, or gives more than options.max_tokens ids.
  [[nodiscard]] virtual Result<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options = {}) const = 0;

  // Always valid UTF-8: bytes that are not become U+FFFD. An id outside the vocabulary is left out. SentencePiece's space before the first
  // word is taken away. `skip_special` leaves out control tokens.
  [[nodiscard]] virtual std::string decode(std::span<const TokenId> tokens, bool skip_special = true) const = 0;

  // The bytes this token stands for, as they are: possibly part of a character only. Empty for an id outside the vocabulary.
  // The view lives as long as the tokenizer.
  [[nodiscard]] virtual std::string_view token_bytes(TokenId token) const = 0;

  // Bytes of the longest token.
  [[nodiscard]] virtual std::size_t max_token_bytes() const = 0;

  // The id of a token by its text ("<|im_end|>", " the").
  [[nodiscard]] virtual std::optional<TokenId> find(std::string_view token_text) const = 0;

  // Control and unknown tokens: not part of what the model says.
  [[nodiscard]] virtual bool is_special(TokenId token) const = 0;

  [[nodiscard]] virtual std::uint32_t vocab_size() const = 0;
  [[nodiscard]] virtual std::optional<TokenId> bos() const = 0;
  [[nodiscard]] virtual std::optional<TokenId> eos() const = 0;
  // Every id that ends a generation, sorted.
  [[nodiscard]] virtual std::span<const TokenId> eog() const = 0;
  // A text's first space is not part of it (SentencePiece); see DetokenizerOptions::start_of_text.
  [[nodiscard]] virtual bool strips_leading_space() const = 0;
};

}  // namespace quire
