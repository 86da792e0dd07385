#include "server/request/infill.h"

#include <array>
#include <string_view>

namespace quire {
namespace {

struct Names {
  std::string_view before_prefix, before_suffix, at_end;
  std::array<std::string_view, 3> ends;  // unused entries are empty
};

constexpr std::array<Names, 4> kNames = {
    {{"<fim_prefix>", "<fim_suffix>", "<fim_middle>", {"<fim_pad>", "<file_sep>", "<filename>"}},
     {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", {"<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"}},
     {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", {}},
     {" <PRE>", " <SUF>", " <MID>", {" <EOT>"}}}};

// Returns the special token with this text. The token may also be user-defined, as DeepSeek's tokens are. CodeLlama's tokens are found by
// name alone, as in llama.cpp.
std::optional<TokenId> special_token(const Tokenizer& tokenizer, std::string_view text) {
  const auto token = text.empty() ? std::nullopt : tokenizer.find(text);
  if (!token || text.front() == ' ') return token;
  const auto tokens = tokenizer.encode(text, {.add_special = false, .parse_special = true});
  return tokens && tokens->size() == 1 ? std::optional(tokens->front()) : std::nullopt;
}

std::optional<Infill> infill_of(const Tokenizer& tokenizer, const Names& names) {
  const auto before_prefix = special_token(tokenizer, names.before_prefix);
  const auto before_suffix = special_token(tokenizer, names.before_suffix);
  const auto at_end = special_token(tokenizer, names.at_end);
  if (!before_prefix || !before_suffix || !at_end) return std::nullopt;
  Infill infill{.before_prefix = *before_prefix, .before_suffix = *before_suffix, .at_end = *at_end};
  infill.ends = {*before_prefix, *before_suffix, *at_end};
  for (const std::string_view name : names.ends)
    if (const auto token = special_token(tokenizer, name)) infill.ends.push_back(*token);
  return infill;
}

}  // namespace

std::optional<Infill> find_infill(const Tokenizer& tokenizer) {
  for (const Names& names : kNames)
    if (auto infill = infill_of(tokenizer, names)) return infill;
  return std::nullopt;
}

std::vector<TokenId> infill_prompt(const Infill& infill, const Tokenizer& tokenizer, std::vector<TokenId> prefix,
                                   const std::vector<TokenId>& suffix) {
  const auto bos = tokenizer.bos();
  const bool begins_by_rule = bos && !prefix.empty() && prefix.front() == *bos;
  prefix.insert(prefix.begin() + (begins_by_rule ? 1 : 0), infill.before_prefix);
  prefix.push_back(infill.before_suffix);
  prefix.insert(prefix.end(), suffix.begin(), suffix.end());
  prefix.push_back(infill.at_end);
  return prefix;
}

}  // namespace quire
