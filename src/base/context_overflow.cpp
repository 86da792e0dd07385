#include "base/context_overflow.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>
#include <utility>

namespace quire {

namespace {

constexpr std::string_view kBegin = "This model's maximum context length is ";
constexpr std::string_view kRequested = " tokens. However, you requested ";
constexpr std::string_view kAtLeast = "at least ";

// Returns the number that follows `mark`, and removes the text up to the end of `mark` from `text`.
std::optional<std::uint64_t> number_after(std::string_view& text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + mark.size());
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

}  // namespace

Error overflow_error(std::string field, const ContextOverflow& overflow) {
  const std::string_view bound = overflow.is_at_least ? kAtLeast : "";
  return {
      ErrorCode::invalid_argument, std::move(field),
      fmt::format("{}{}{}{}{} tokens ({} in the messages, {} in the completion). Reduce the length of the messages or of the completion, "
                  "or serve with a larger --max-model-len.",
                  kBegin, overflow.max_model_len, kRequested, bound, overflow.prompt_tokens + overflow.answer_tokens,
                  overflow.prompt_tokens, overflow.answer_tokens),
      ""};
}

std::optional<ContextOverflow> overflow_of(const Error& error) {
  std::string_view text = error.message;
  if (error.code != ErrorCode::invalid_argument || !text.starts_with(kBegin)) return std::nullopt;
  const bool is_at_least = text.find(kAtLeast) != std::string_view::npos;
  const auto max_model_len = number_after(text, kBegin);
  const auto prompt_tokens = number_after(text, " tokens (");
  const auto answer_tokens = number_after(text, "in the messages, ");
  if (!max_model_len || !prompt_tokens || !answer_tokens) return std::nullopt;
  return ContextOverflow{
      .prompt_tokens = *prompt_tokens, .answer_tokens = *answer_tokens, .max_model_len = *max_model_len, .is_at_least = is_at_least};
}

}  // namespace quire
