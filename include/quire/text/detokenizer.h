#pragma once
// Converts the tokens of one stream to text as they arrive. Owned by one thread at a time.
#include <string>
#include <string_view>

#include "quire/base/api.h"
#include "quire/base/ids.h"
#include "quire/text/tokenizer.h"
#include "quire/text/utf8_repair.h"

namespace quire {

struct DetokenizerOptions {
  bool skip_special = true;    // leave control tokens out of the text
  bool start_of_text = false;  // the stream does not continue a prompt, so SentencePiece's first space is removed
};

// Converts tokens to text. A character may consist of several tokens: its bytes are held back until it is complete. At most 3 bytes are
// held back, so the text is never more than one character late.
class QUIRE_API Detokenizer {
 public:
  // `tokenizer` must outlive the detokenizer.
  explicit Detokenizer(const Tokenizer& tokenizer, DetokenizerOptions options = {});

  // Returns the text that this token completes: only complete UTF-8 characters, possibly none. Invalid bytes become U+FFFD as soon as they
  // are known to be invalid. The view is valid until the next call.
  std::string_view push(TokenId token);

  // Ends the stream: returns U+FFFD for held bytes, if any, and resets the detokenizer.
  std::string_view flush();

  // Returns the number of held bytes of an incomplete character: 0 to 3.
  [[nodiscard]] std::size_t num_held_bytes() const { return repair_.num_held_bytes(); }

 private:
  const Tokenizer* tokenizer_;
  DetokenizerOptions options_;
  bool strip_next_space_ = false;
  Utf8Repair repair_;
  std::string text_;
};

}  // namespace quire
