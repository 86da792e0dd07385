// Reads the normalizer, pre-tokenizer and post-processor of tokenizer.json. Called by tokenizer_hf.cpp. Each stage becomes a field of
// TokenizerSpec or is an `unsupported` error. An approximation of a stage would produce wrong ids only rarely, so the error would stay
// undetected.
#include <fmt/format.h>

#include <algorithm>

#include "base/known_splits.h"
#include "format/quote.h"
#include "format/tokenizer_hf.h"

namespace quire::hf {
namespace {

using Algorithm = TokenizerSpec::Algorithm;

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581
// Punctuation as in the tokenizers library: Unicode punctuation, and ASCII symbols that Unicode puts in other classes.
constexpr std::string_view kPunctuation = R"([\p{P}$+<=>^`|~])";
constexpr std::uint32_t kMaxStages = 64;

std::unexpected<Error> unsupported(const JsonRef& where, std::string message) {
  return fail(ErrorCode::unsupported, where.path(), std::move(message), "use a GGUF file of this model, or another model");
}

// Returns the stages: one stage, or the flattened stages of a Sequence. `list` is the key of a Sequence's list.
Result<std::vector<JsonRef>> stages(const JsonRef& root, std::string_view key, std::string_view list) {
  const auto stage = root.find(key);
  if (!stage) return std::vector<JsonRef>{};
  std::vector<JsonRef> todo{*stage};
  std::vector<JsonRef> flat;
  while (!todo.empty()) {
    const JsonRef next = std::move(todo.back());
    todo.pop_back();
    auto type = next.get<std::string_view>("type");
    if (!type) return std::unexpected(std::move(type.error()));
    if (*type != "Sequence") {
      flat.push_back(next);
    } else {
      const auto member = next.at(list);
      if (!member) return std::unexpected(member.error());
      const auto inner = member->elements();
      if (!inner) return std::unexpected(inner.error());
      todo.insert(todo.end(), inner->rbegin(), inner->rend());
    }
    if (flat.size() + todo.size() > kMaxStages)
      return unsupported(*stage, fmt::format("has more than {} stages, which is not supported", kMaxStages));
  }
  return flat;
}

std::string escape_regex(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view(R"(\^$.|?*+()[]{}-#)").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

// Returns {"String": "..."} or {"Regex": "..."} as a regular expression.
Result<std::string> read_pattern(const JsonRef& stage) {
  const auto pattern = stage.at("pattern");
  if (!pattern) return std::unexpected(pattern.error());
  if (pattern->find("Regex")) return pattern->get<std::string>("Regex");
  auto text = pattern->get<std::string_view>("String");
  if (!text) return std::unexpected(std::move(text.error()));
  return escape_regex(*text);
}

// Properties of the normalizers that affect the pre-tokenizers.
struct Normalized {
  bool has_space_symbol = false;
  bool prefix = false;
};

Result<void> read_replace(const JsonRef& stage, Normalized& result) {
  auto pattern = read_pattern(stage);
  if (!pattern) return std::unexpected(std::move(pattern.error()));
  auto content = stage.get<std::string_view>("content");
  if (!content) return std::unexpected(std::move(content.error()));
  if (*pattern != " " || *content != kSpaceSymbol) return unsupported(stage, "Replace is supported only for spaces by U+2581");
  result.has_space_symbol = true;
  return {};
}

Result<Normalized> read_normalizers(const JsonRef& root, TokenizerSpec& spec) {
  Normalized result;
  const auto list = stages(root, "normalizer", "normalizers");
  if (!list) return std::unexpected(list.error());
  for (const JsonRef& stage : *list) {
    const auto type = *stage.get<std::string_view>("type");
    if (type == "NFC") {
      spec.normalizer = "nfc";
    } else if (type == "Prepend") {
      auto text = stage.get<std::string_view>("prepend");
      if (!text) return std::unexpected(std::move(text.error()));
      if (*text != kSpaceSymbol && *text != " ") return unsupported(stage, "the only supported prefix is a space");
      result.prefix = true;
    } else if (type == "Replace") {
      if (auto ok = read_replace(stage, result); !ok) return std::unexpected(std::move(ok.error()));
    } else {
      return unsupported(stage, fmt::format("normalizer {} is not supported", in_quotes(type)));
    }
  }
  return result;
}

Result<void> read_split(const JsonRef& stage, const Normalized& normalized, TokenizerSpec& spec) {
  auto pattern = read_pattern(stage);
  if (!pattern) return std::unexpected(std::move(pattern.error()));
  auto behavior = stage.get<std::string_view>("behavior");
  if (!behavior) return std::unexpected(std::move(behavior.error()));
  auto invert = stage.get_or<bool>("invert", false);
  if (!invert) return std::unexpected(std::move(invert.error()));
  if (normalized.has_space_symbol && *pattern == " ") return {};  // no spaces are left to split at
  // An inverted "Removed" keeps the matches and drops the text between them. It is accepted because the patterns in use leave no text
  // between matches.
  if (*behavior != "Isolated" && !(*behavior == "Removed" && *invert))
    return unsupported(stage, fmt::format("Split with behavior {} is not supported", in_quotes(*behavior)));
  spec.split_patterns.push_back(std::move(*pattern));
  return {};
}

Result<void> read_digits(const JsonRef& stage, TokenizerSpec& spec) {
  auto individual = stage.get_or<bool>("individual_digits", false);
  if (!individual) return std::unexpected(std::move(individual.error()));
  spec.split_patterns.emplace_back(*individual ? R"(\p{N})" : R"(\p{N}+)");
  return {};
}

Result<void> read_punctuation(const JsonRef& stage, TokenizerSpec& spec) {
  auto behavior = stage.get_or<std::string>("behavior", "Isolated");
  if (!behavior) return std::unexpected(std::move(behavior.error()));
  if (*behavior != "Isolated" && *behavior != "Contiguous")
    return unsupported(stage, fmt::format("Punctuation with behavior {} is not supported", in_quotes(*behavior)));
  spec.split_patterns.push_back(std::string(kPunctuation) + (*behavior == "Contiguous" ? "+" : ""));
  return {};
}

Result<void> read_byte_level(const JsonRef& stage, TokenizerSpec& spec) {
  auto prefix = stage.get_or<bool>("add_prefix_space", true);
  if (!prefix) return std::unexpected(std::move(prefix.error()));
  auto use_regex = stage.get_or<bool>("use_regex", true);
  if (!use_regex) return std::unexpected(std::move(use_regex.error()));
  spec.algorithm = Algorithm::bpe_bytes;
  spec.add_space_prefix = *prefix;
  spec.space_prefix_unless_present = *prefix;
  if (*use_regex) spec.split_patterns.emplace_back(kGpt2Split);
  return {};
}

Result<void> read_metaspace(const JsonRef& stage, TokenizerSpec& spec) {
  auto mark = stage.get_or<std::string>("replacement", std::string(kSpaceSymbol));
  if (!mark) return std::unexpected(std::move(mark.error()));
  if (*mark != kSpaceSymbol) return unsupported(stage, "the only supported replacement is U+2581");
  auto split = stage.get_or<bool>("split", true);
  if (!split) return std::unexpected(std::move(split.error()));
  if (*split) return unsupported(stage, "Metaspace with split = true is not supported");
  auto always = stage.get_or<bool>("add_prefix_space", true);
  if (!always) return std::unexpected(std::move(always.error()));
  auto scheme = stage.get_or<std::string>("prepend_scheme", *always ? "always" : "never");
  if (!scheme) return std::unexpected(std::move(scheme.error()));
  if (*scheme != "always" && *scheme != "first" && *scheme != "never")
    return unsupported(stage, fmt::format("prepend_scheme {} is not supported", in_quotes(*scheme)));
  spec.algorithm = Algorithm::sentencepiece;
  spec.add_space_prefix = *scheme != "never";
  spec.replaces_spaces_after_added_tokens = true;
  spec.space_prefix_first_only = *scheme == "first";
  spec.space_prefix_unless_present = spec.add_space_prefix;
  return {};
}

Result<void> read_pre_tokenizer(const JsonRef& stage, const Normalized& normalized, TokenizerSpec& spec) {
  const auto type = *stage.get<std::string_view>("type");
  if (spec.algorithm != Algorithm::unsupported)
    return unsupported(stage, fmt::format("{} after the last step is not supported", in_quotes(type)));
  if (type == "Split") return read_split(stage, normalized, spec);
  if (type == "Digits") return read_digits(stage, spec);
  if (type == "Punctuation") return read_punctuation(stage, spec);
  if (type == "ByteLevel") return read_byte_level(stage, spec);
  if (type == "Metaspace" && !normalized.prefix) return read_metaspace(stage, spec);
  return unsupported(stage, fmt::format("pre-tokenizer {} is not supported", in_quotes(type)));
}

Result<std::vector<TokenId>> ids_of(const JsonRef& stage, std::string_view name) {
  const auto special = stage.at("special_tokens");
  if (!special) return std::unexpected(special.error());
  const auto entry = special->at(name);
  if (!entry) return std::unexpected(entry.error());
  const auto list = entry->at("ids");
  if (!list) return std::unexpected(list.error());
  const auto ids = list->elements();
  if (!ids) return std::unexpected(ids.error());
  std::vector<TokenId> read;
  for (const JsonRef& item : *ids) {
    const auto id = item.as<TokenId>();
    if (!id) return std::unexpected(id.error());
    read.push_back(*id);
  }
  return read;
}

Result<void> read_template(const JsonRef& stage, TokenizerSpec& spec) {
  const auto single = stage.at("single");
  if (!single) return std::unexpected(single.error());
  const auto pieces = single->elements();
  if (!pieces) return std::unexpected(pieces.error());
  std::vector<TokenId> before, after;
  bool seen_text = false;
  for (const JsonRef& piece : *pieces) {
    const auto token = piece.find("SpecialToken");
    if (!token) {
      seen_text = true;
      continue;
    }
    const auto name = token->get<std::string_view>("id");
    if (!name) return std::unexpected(name.error());
    // The beginning of a Whisper transcript depends on the request, so the caller supplies these tokens.
    if (*name == "<|startoftranscript|>") return {};
    const auto ids = ids_of(stage, *name);
    if (!ids) return std::unexpected(ids.error());
    for (const TokenId id : *ids) {
      if (id < 0 || static_cast<std::size_t>(id) >= spec.tokens.size())
        return token->error(fmt::format("token {} is outside the vocabulary of {} tokens", id, spec.tokens.size()));
      (seen_text ? after : before).push_back(id);
    }
  }
  // The tokens of a later stage go outside the tokens of an earlier stage.
  spec.before.insert(spec.before.begin(), before.begin(), before.end());
  spec.after.insert(spec.after.end(), after.begin(), after.end());
  return {};
}

// Moves a single token before or after the text to BOS or EOS, which tokenizer_config.json may rename or disable. Several tokens stay in
// `before` or `after`.
void name_single_ids(TokenizerSpec& spec) {
  if (spec.before.size() == 1) {
    spec.add_bos = true;
    spec.bos = spec.before.front();
    spec.before.clear();
  }
  if (spec.after.size() == 1) {
    spec.add_eos = true;
    spec.eos = spec.after.front();
    spec.after.clear();
  }
}

}  // namespace

Result<void> read_splitting(const JsonRef& root, TokenizerSpec& spec) {
  const auto normalized = read_normalizers(root, spec);
  if (!normalized) return std::unexpected(normalized.error());
  const auto list = stages(root, "pre_tokenizer", "pretokenizers");
  if (!list) return std::unexpected(list.error());
  for (const JsonRef& stage : *list)
    if (auto ok = read_pre_tokenizer(stage, *normalized, spec); !ok) return ok;
  if (spec.algorithm == Algorithm::bpe_bytes) {
    if (!normalized->has_space_symbol && !normalized->prefix) return {};
    return unsupported(root, "ByteLevel after a normalizer that changes spaces is not supported");
  }
  if (!spec.split_patterns.empty()) return unsupported(root, "splits without a ByteLevel pre-tokenizer are not supported");
  if (spec.algorithm == Algorithm::sentencepiece) return {};
  if (!normalized->has_space_symbol) return unsupported(root, "only byte-level BPE and SentencePiece-style BPE are supported");
  spec.algorithm = Algorithm::sentencepiece;
  spec.add_space_prefix = normalized->prefix;
  return {};
}

Result<void> read_post_processor(const JsonRef& root, TokenizerSpec& spec) {
  const auto list = stages(root, "post_processor", "processors");
  if (!list) return std::unexpected(list.error());
  for (const JsonRef& stage : *list) {
    const auto type = *stage.get<std::string_view>("type");
    if (type == "ByteLevel") continue;  // moves offsets only
    if (type != "TemplateProcessing") return unsupported(stage, fmt::format("post-processor {} is not supported", in_quotes(type)));
    if (auto ok = read_template(stage, spec); !ok) return ok;
  }
  name_single_ids(spec);
  return {};
}

}  // namespace quire::hf
