#include "text/regex.h"

#include <oniguruma.h>

#include <algorithm>
#include <array>

namespace quire {
namespace {

constexpr std::size_t kStepsPerByte = 64;
constexpr std::size_t kMinSteps = 1'000'000;

const OnigUChar* bytes_of(std::string_view text) {
  return reinterpret_cast<const OnigUChar*>(text.data());
}

// Initializes Oniguruma once, on one thread, as Oniguruma requires.
void initialize_engine() {
  static const int status = [] {
    std::array<OnigEncoding, 1> encodings{ONIG_ENCODING_UTF8};
    return onig_initialize(encodings.data(), 1);
  }();
  static_cast<void>(status);
}

std::string message_of(int status, OnigErrorInfo* info) {
  std::array<OnigUChar, ONIG_MAX_ERROR_MESSAGE_LEN> message{};
  const int length =
      info != nullptr ? onig_error_code_to_str(message.data(), status, info) : onig_error_code_to_str(message.data(), status);
  return {reinterpret_cast<const char*>(message.data()), static_cast<std::size_t>(std::max(length, 0))};
}

struct RegionDeleter {
  void operator()(OnigRegion* region) const { onig_region_free(region, 1); }
};
struct MatchParamDeleter {
  void operator()(OnigMatchParam* param) const { onig_free_match_param(param); }
};

}  // namespace

struct Regex::Compiled {
  regex_t* regex = nullptr;
  Compiled() = default;
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;
  ~Compiled() {
    if (regex != nullptr) onig_free(regex);
  }
};

Result<Regex> Regex::create(std::string_view pattern) {
  initialize_engine();
  auto compiled = std::make_shared<Compiled>();
  OnigErrorInfo info{};
  const int status = onig_new(&compiled->regex, bytes_of(pattern), bytes_of(pattern) + pattern.size(), ONIG_OPTION_NONE, ONIG_ENCODING_UTF8,
                              ONIG_SYNTAX_DEFAULT, &info);
  if (status == ONIG_NORMAL) return Regex(std::move(compiled));
  return fail(ErrorCode::unsupported, "pre_tokenizer",
              "contains an invalid regular expression: " + message_of(status, &info) + " in the expression " + std::string(pattern),
              "use a GGUF file of this model, or another model");
}

Result<std::optional<Regex::Match>> Regex::find(std::string_view text, std::size_t from) const {
  const std::unique_ptr<OnigRegion, RegionDeleter> region(onig_region_new());
  const std::unique_ptr<OnigMatchParam, MatchParamDeleter> param(onig_new_match_param());
  onig_initialize_match_param(param.get());
  const std::size_t max_steps = std::max(kMinSteps, kStepsPerByte * text.size());
  onig_set_retry_limit_in_match_of_match_param(param.get(), max_steps);
  onig_set_retry_limit_in_search_of_match_param(param.get(), max_steps);
  const OnigUChar* begin = bytes_of(text);
  const OnigUChar* end = begin + text.size();
  const int at = onig_search_with_param(compiled_->regex, begin, end, begin + from, end, region.get(), ONIG_OPTION_NONE, param.get());
  if (at == ONIG_MISMATCH) return std::nullopt;
  if (at < 0) {
    return fail(ErrorCode::invalid_argument, "text", "a regular expression of the tokenizer failed: " + message_of(at, nullptr),
                "shorten the text or its longest run of equal characters");
  }
  return Match{static_cast<std::size_t>(region->beg[0]), static_cast<std::size_t>(region->end[0])};
}

}  // namespace quire
