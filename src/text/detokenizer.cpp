#include "quire/text/detokenizer.h"

namespace quire {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, DetokenizerOptions options)
    : tokenizer_(&tokenizer), options_(options), strip_next_space_(options.start_of_text && tokenizer.strips_leading_space()) {}

std::string_view Detokenizer::push(TokenId token) {
  text_.clear();
  if (options_.skip_special && tokenizer_->is_special(token)) return text_;
  std::string_view bytes = tokenizer_->token_bytes(token);
  if (bytes.empty()) return text_;
  if (strip_next_space_ && bytes.front() == ' ') bytes.remove_prefix(1);
  strip_next_space_ = false;
  repair_.push(bytes, text_);
  return text_;
}

std::string_view Detokenizer::flush() {
  text_.clear();
  repair_.flush(text_);
  strip_next_space_ = options_.start_of_text && tokenizer_->strips_leading_space();
  return text_;
}

}  // namespace quire
