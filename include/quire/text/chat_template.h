#pragma once
// Renders chat templates in a subset of Jinja 2, with the settings of Hugging Face transformers (trim_blocks, lstrip_blocks, loop controls,
// the `generation` tag, an immutable sandbox). Within the subset the output equals jinja2's. Other constructs are rejected: by parse() if
// the template's text shows them, by render() if they depend on a value.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "quire/base/api.h"
#include "quire/base/cancellation_point.h"
#include "quire/base/error.h"
#include "quire/text/tokenizer.h"

namespace boost::json {
class value;
}

namespace quire {

// Limits of one rendering. The work of every loop, call and copy counts, so a template that would never end stops with the error
// `too_large`.
struct TemplateLimits {
  std::uint64_t max_steps = 5'000'000;                           // evaluated expressions, statements and copied elements
  std::uint64_t max_output_bytes = std::uint64_t{16} << 20;      // limit for the rendered text and each intermediate text
  std::uint64_t max_allocated_bytes = std::uint64_t{256} << 20;  // limit for all intermediate texts and containers together
  std::uint32_t max_depth = 400;                                 // nested statements, expressions and macro calls
};

struct TemplateOptions {
  // Local wall-clock time in seconds since 1970-01-01, for strftime_now. Absent: strftime_now is undefined, as in older transformers.
  std::optional<std::int64_t> now_s;
  TemplateLimits limits;
  // Called every few thousand steps; null: never called. render() lets its exceptions through.
  const CancellationPoint* cancellation = nullptr;
};

// One turn of a plain conversation. The role is passed to the template unchanged; the template decides which roles it accepts.
struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

namespace jinja {
struct Program;
}

// A parsed chat template. Immutable: cheap to copy, and render() may be called from several threads at the same time.
class QUIRE_API ChatTemplate {
 public:
  static constexpr std::size_t kMaxSourceBytes = std::size_t{1} << 20;

  // Parses a template. Errors (field "chat_template"): `invalid_argument` for a syntax error, `unsupported` for a construct outside the
  // subset, `too_large`; the message names the line and the construct: "line 12: filter 'foo' is not supported".
  static Result<ChatTemplate> parse(std::string_view source);

  // Renders the template. `context` is an object: messages, tools (array or null), add_generation_prompt, bos_token, eos_token and other
  // names that the template reads. If the template called raise_exception, the error is `invalid_argument` with field "messages" and the
  // template's message. Other errors have field "chat_template": `invalid_argument` (the template fails for this conversation),
  // `unsupported`, `too_large`.
  [[nodiscard]] Result<std::string> render(const boost::json::value& context, const TemplateOptions& options = {}) const;
  // Renders a plain conversation with the prompt for its next answer, without tools. strftime_now is defined.
  [[nodiscard]] Result<std::string> render(std::span<const ChatMessage> messages, const Tokenizer& tokenizer) const;

 private:
  explicit ChatTemplate(std::shared_ptr<const jinja::Program> program) : program_(std::move(program)) {}

  std::shared_ptr<const jinja::Program> program_;
};

}  // namespace quire
