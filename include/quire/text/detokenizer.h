#pragma once
// Tokens of one stream to text, as they come. Owned by one thread at a time.
#include <string>
#include <string_view>

#include "quire/base/api.h"
#include "quire/base/ids.h"
#include "quire/text/tokenizer.h"
#include "quire/text/utf8_repair.h"

namespace quire {

struct DetokenizerOptions {
  bool skip_special = true;    // control tokens give no text
  bool start_of_text = false;  // the stream begins a text instead of going on from a prompt: SentencePiece's first space is taken away
};

// Tokens do not end where characters do: a character may come in several tokens, and its bytes are held back until it is whole. At most 3
// bytes wait, so a stream lags by less than one character.
class QUIRE_API Detokenizer {
 public:
  // `tokenizer` must outlive this.
  explicit Detokenizer(const Tokenizer& tokenizer, DetokenizerOptions options = {});

  // The text that this token completes: whole UTF-8 characters only, possibly none. Bytes that cannot begin or continue a character become
  // U+FFFD as soon as that is certain. The view is valid until the next call.
  std::string_view push(TokenId token);

  // The end of the stream: what was held back, as U+FFFD. The detokenizer is then as new.
  std::string_view flush();

  // Bytes of an unfinished character held back: 0 to 3.
  [[nodiscard]] std::size_t num_held_bytes() const { return repair_.num_held_bytes(); }

 private:
  const Tokenizer* tokenizer_;
  DetokenizerOptions options_;
  bool strip_next_space_ = false;
  Utf8Repair repair_;
  std::string text_;
};

}  // namespace quire
