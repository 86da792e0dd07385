#pragma once
// How an API tells an answer: what a request carries to where its answer is written.
#include <memory>
#include <string_view>

#include "quire/base/error.h"
#include "quire/text/tokenizer.h"

namespace quire {

class AnswerWriter;
struct AnswerHead;
struct CompletionRequest;

// One for each request, or for many. Immutable: any thread.
class AnswerShape {
 public:
  AnswerShape() = default;
  AnswerShape(const AnswerShape&) = delete;
  AnswerShape& operator=(const AnswerShape&) = delete;
  virtual ~AnswerShape() = default;

  // What ids of answers begin with ("chatcmpl-").
  [[nodiscard]] virtual std::string_view id_prefix() const = 0;
  // Whether a chat's answer is taken apart (AnswerPart) also where it can be nothing but text.
  [[nodiscard]] virtual bool always_has_parts() const = 0;
  // An error of the common request, with the names that this API has for its fields.
  [[nodiscard]] virtual Error in_words_of_client(Error error) const = 0;
  // `tokenizer` must outlive it.
  [[nodiscard]] virtual std::unique_ptr<AnswerWriter> make_writer(AnswerHead head, const CompletionRequest& request,
                                                                  const Tokenizer& tokenizer) const = 0;
};

}  // namespace quire
