#pragma once
// Chat templates: a subset of Jinja 2 with the settings that Hugging Face transformers uses (trim_blocks, lstrip_blocks, loop controls,
// the `generation` tag, an immutable sandbox). Within the subset the text equals jinja2's; what is outside it is refused by parse() as far
// as the template's text shows it, and by render() where it depends on a value.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "quire/base/api.h"
#include "quire/base/error.h"
#include "quire/text/tokenizer.h"

namespace boost::json {
class value;
}

namespace quire {

// Every loop, call and copy counts, so a template that runs away ends with `too_large`.
struct TemplateLimits {
  std::uint64_t max_steps = 5'000'000;                           // evaluated expressions, statements and copied elements
  std::uint64_t max_output_bytes = std::uint64_t{16} << 20;      // of the rendered text and of any text on the way
  std::uint64_t max_allocated_bytes = std::uint64_t{256} << 20;  // all texts made on the way, together
  std::uint32_t max_depth = 400;                                 // nested statements, expressions and macro calls
};

struct TemplateOptions {
  // Seconds since 1970-01-01 of the local wall clock, for strftime_now. Absent: strftime_now is not defined, as in older transformers.
  std::optional<std::int64_t> now_s;
  TemplateLimits limits;
};

// One turn of a plain conversation. The role is handed to the template as it is: which roles it knows is the template's business.
struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

namespace jinja {
struct Program;
}

// Immutable after parse(): cheap to copy, and render() may be called from several threads at once.
class QUIRE_API ChatTemplate {
 public:
  static constexpr std::size_t kMaxSourceBytes = std::size_t{1} << 20;

  // Errors (field "chat_template"): `invalid_argument` for a syntax error, `unsupported` for a construct outside the subset, `too_large`;
  // the message names the line and the construct: "line 12: filter 'foo' is not supported".
  static Result<ChatTemplate> parse(std::string_view source);

  // `context` is an object: messages, tools (array or null), add_generation_prompt, bos_token, eos_token and any further names the
  // template reads. Errors: `invalid_argument` with field "messages" and the template's own words if it called raise_exception; else with
  // field "chat_template" `invalid_argument` (the template cannot digest this conversation), `unsupported` or `too_large`.
  [[nodiscard]] Result<std::string> render(const boost::json::value& context, const TemplateOptions& options = {}) const;
  // A plain conversation and the prompt for its next answer, without tools. strftime_now is defined.
  [[nodiscard]] Result<std::string> render(std::span<const ChatMessage> messages, const Tokenizer& tokenizer) const;

 private:
  explicit ChatTemplate(std::shared_ptr<const jinja::Program> program) : program_(std::move(program)) {}

  std::shared_ptr<const jinja::Program> program_;
};

}  // namespace quire
