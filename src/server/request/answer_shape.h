#pragma once
// The answer format of an API. A request carries its shape to the code that writes its answer.
#include <memory>
#include <string_view>

#include "quire/base/error.h"
#include "quire/text/tokenizer.h"
#include "server/http/reply.h"

namespace quire {

class AnswerWriter;
struct AnswerHead;
struct CompletionRequest;

// Created for one request or for many. Immutable, so any thread may use it.
class AnswerShape {
 public:
  AnswerShape() = default;
  AnswerShape(const AnswerShape&) = delete;
  AnswerShape& operator=(const AnswerShape&) = delete;
  virtual ~AnswerShape() = default;

  // Returns the prefix of answer ids ("chatcmpl-").
  [[nodiscard]] virtual std::string_view id_prefix() const = 0;
  // Returns whether a chat's answer is split into parts (AnswerPart) even if it can only be plain text.
  [[nodiscard]] virtual bool always_has_parts() const = 0;
  // Returns the Content-Type of a streamed answer.
  [[nodiscard]] virtual std::string_view stream_content_type() const { return kEventStream; }
  // Converts an error of the common request to this API's field names.
  [[nodiscard]] virtual Error with_client_field_names(Error error) const = 0;
  // `tokenizer` must outlive the writer.
  [[nodiscard]] virtual std::unique_ptr<AnswerWriter> make_writer(AnswerHead head, const CompletionRequest& request,
                                                                  const Tokenizer& tokenizer) const = 0;
};

}  // namespace quire
