// Reads tekken.json and tiktoken.model, which list tokens as bytes with ranks and have no merges. Called once per model, when its headers
// are read, on any thread. Python's tiktoken encodes with both files: it merges the neighbours whose joined token has the lowest rank, and
// keeps a piece whole if the piece is a token. Formats are as read by mistral-common (tekken.py) and Moonshot AI's tokenization_kimi.py.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "base/base64.h"
#include "base/byte_alphabet.h"
#include "base/known_splits.h"
#include "format/quote.h"
#include "format/tokenizer_hf.h"

namespace quire::hf {
namespace {

using TokenType = TokenizerSpec::TokenType;

constexpr std::uint32_t kMaxSpecialTokens = 1U << 16;
constexpr std::uint32_t kNumKimiSpecialTokens = 256;
constexpr JsonLimits kTekkenLimits{.max_bytes = std::uint64_t{256} << 20, .max_depth = 64};

std::unexpected<Error> corrupt(std::string field, std::string message) {
  return fail(ErrorCode::corrupt, std::move(field), std::move(message), "download the file again");
}

TokenizerSpec ranked_spec() {
  TokenizerSpec spec;
  spec.algorithm = TokenizerSpec::Algorithm::bpe_bytes;
  spec.ids_are_ranks = spec.ignore_merges = spec.added_tokens_verbatim = true;
  return spec;
}

// Decodes base64 and returns the bytes in the byte alphabet that TokenizerSpec uses.
std::optional<std::string> token_text(std::string_view base64) {
  const auto bytes = from_base64(base64);
  if (!bytes || bytes->empty()) return std::nullopt;
  return to_byte_alphabet({reinterpret_cast<const char*>(bytes->data()), bytes->size()});
}

// Sets the token with this id. Returns false if the id already has a token.
bool put(TokenizerSpec& spec, std::size_t id, std::string text, TokenType type) {
  if (id >= spec.tokens.size()) {
    spec.tokens.resize(id + 1);
    spec.types.resize(id + 1, TokenType::unused);
  }
  if (spec.types[id] != TokenType::unused) return false;
  spec.tokens[id] = std::move(text);
  spec.types[id] = type;
  return true;
}

Result<void> read_tekken_vocabulary(const JsonRef& root, std::uint32_t num_special, std::uint32_t num_plain, TokenizerSpec& spec) {
  const auto list = root.at("vocab");
  const auto entries = list ? list->elements() : std::unexpected(list.error());
  if (!entries) return std::unexpected(entries.error());
  if (entries->size() < num_plain)
    return list->error(fmt::format("has {} tokens, but config requires {}", entries->size(), num_plain), "download the file again");
  for (std::uint32_t i = 0; i < num_plain; ++i) {
    const JsonRef& entry = (*entries)[i];
    const auto rank = entry.get<std::uint32_t>("rank");
    const auto bytes = entry.get<std::string_view>("token_bytes");
    if (!rank) return std::unexpected(rank.error());
    if (!bytes) return std::unexpected(bytes.error());
    auto text = token_text(*bytes);
    if (!text || *rank != i) return entry.error(fmt::format("is not a valid token of rank {}", i), "download the file again");
    put(spec, std::size_t{num_special} + i, std::move(*text), TokenType::normal);
  }
  return {};
}

// Files before version 7 list no special tokens and use the list that mistral-common defines.
Result<void> read_tekken_specials(const JsonRef& root, std::uint32_t num_special, TokenizerSpec& spec) {
  constexpr std::array kOlder{"<unk>",
                              "<s>",
                              "</s>",
                              "[INST]",
                              "[/INST]",
                              "[AVAILABLE_TOOLS]",
                              "[/AVAILABLE_TOOLS]",
                              "[TOOL_RESULTS]",
                              "[/TOOL_RESULTS]",
                              "[TOOL_CALLS]",
                              "[IMG]",
                              "<pad>",
                              "[IMG_BREAK]",
                              "[IMG_END]",
                              "[PREFIX]",
                              "[MIDDLE]",
                              "[SUFFIX]",
                              "[SYSTEM_PROMPT]",
                              "[/SYSTEM_PROMPT]",
                              "[TOOL_CONTENT]"};
  const auto list = root.find("special_tokens");
  if (!list)
    for (std::size_t i = 0; i < std::min<std::size_t>(kOlder.size(), num_special); ++i) put(spec, i, kOlder[i], TokenType::control);
  const auto entries = list ? list->elements() : Result<std::vector<JsonRef>>(std::vector<JsonRef>{});
  if (!entries) return std::unexpected(entries.error());
  for (const JsonRef& entry : *entries) {
    const auto rank = entry.get<std::uint32_t>("rank");
    const auto text = entry.get<std::string>("token_str");
    if (!rank) return std::unexpected(rank.error());
    if (!text) return std::unexpected(text.error());
    if (*rank >= num_special || text->empty() || !put(spec, *rank, *text, TokenType::control))
      return entry.error(
          fmt::format("{} with rank {} is empty, a duplicate or outside the {} special tokens", in_quotes(*text), *rank, num_special),
          "download the file again");
  }
  for (std::uint32_t i = 0; i < num_special; ++i) put(spec, i, fmt::format("<SPECIAL_{}>", i), TokenType::control);
  return {};
}

struct Line {
  std::string_view token;
  std::uint32_t rank = 0;
};

// Parses a line "base64 rank".
std::optional<Line> read_line(std::string_view line) {
  const std::size_t space = line.find(' ');
  if (space == line.npos) return std::nullopt;
  Line read{line.substr(0, space)};
  const std::string_view number = line.substr(space + 1);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), read.rank);
  if (error != std::errc() || end != number.data() + number.size()) return std::nullopt;
  return read;
}

// Reads the added tokens from tokenizer_config.json whose ids begin at `first`. Special tokens become control tokens, other tokens
// user-defined.
Result<void> read_added(const JsonRef& config, std::size_t first, TokenizerSpec& spec) {
  const auto added = config.find("added_tokens_decoder");
  if (!added) return {};
  const auto entries = added->object();
  if (!entries) return std::unexpected(entries.error());
  for (const auto& member : **entries) {
    const std::string key(member.key());
    std::uint32_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size()) return added->error(fmt::format("{} is not a token id", in_quotes(key)));
    if (id < first || id >= first + kNumKimiSpecialTokens) continue;
    const auto entry = added->at(key);
    if (!entry) return std::unexpected(entry.error());
    auto content = entry->get<std::string>("content");
    if (!content) return std::unexpected(std::move(content.error()));
    const auto special = entry->get_or<bool>("special", false);
    if (!special) return std::unexpected(special.error());
    put(spec, id, std::move(*content), *special ? TokenType::control : TokenType::user_defined);
  }
  return {};
}

}  // namespace

Result<TokenizerSpec> read_tekken(std::string_view text, const std::string& path) {
  const auto json = parse_json(text, path, kTekkenLimits);
  if (!json) return std::unexpected(json.error());
  const JsonRef root(*json, path);
  const auto config = root.at("config");
  if (!config) return std::unexpected(config.error());
  const auto size = config->get<std::uint32_t>("default_vocab_size"),
             num_special = config->get<std::uint32_t>("default_num_special_tokens");
  for (const auto* number : {&size, &num_special})
    if (!*number) return std::unexpected(number->error());
  auto pattern = config->get<std::string>("pattern");
  if (!pattern) return std::unexpected(std::move(pattern.error()));
  if (*num_special > kMaxSpecialTokens || *num_special >= *size)
    return config->error(fmt::format("the vocabulary of {} tokens cannot have {} special tokens", *size, *num_special),
                         "download the file again");
  TokenizerSpec spec = ranked_spec();
  spec.split_patterns = {std::move(*pattern)};
  if (auto read = read_tekken_vocabulary(root, *num_special, *size - *num_special, spec); !read) return std::unexpected(read.error());
  if (auto read = read_tekken_specials(root, *num_special, spec); !read) return std::unexpected(read.error());
  for (const auto& [name, id] : {std::pair("<s>", &spec.bos), {"</s>", &spec.eos}, {"<unk>", &spec.unk}, {"<pad>", &spec.pad}}) {
    const auto found = std::find(spec.tokens.begin(), spec.tokens.begin() + *num_special, name);
    if (found != spec.tokens.begin() + *num_special) *id = static_cast<TokenId>(found - spec.tokens.begin());
  }
  spec.add_bos = spec.bos.has_value();
  const auto version = config->get_or<std::string>("version", "");
  if (!version) return std::unexpected(version.error());
  spec.chat_template = tekken_template(*version);
  return spec;
}

Result<TokenizerSpec> read_tiktoken(std::string_view text, const std::string& path, const Files& files) {
  const auto name = files.config ? files.config->get_or<std::string>("tokenizer_class", "") : Result<std::string>("");
  if (!name) return std::unexpected(name.error());
  if (*name != "TikTokenTokenizer")
    return fail(ErrorCode::unsupported, path,
                "tokenizer_config.json must name tokenizer_class TikTokenTokenizer, which defines how words are split",
                "use a folder with a tokenizer.json, or a GGUF file of this model");
  TokenizerSpec spec = ranked_spec();
  spec.split_patterns = {kKimiSplit};
  std::size_t num_tokens = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view row = text.substr(at, end - at);
    at = end + 1;
    if (row.ends_with('\r')) row.remove_suffix(1);
    if (row.empty()) continue;
    const auto line = read_line(row);
    auto token = line ? token_text(line->token) : std::nullopt;
    if (!token || line->rank > text.size() || !put(spec, line->rank, std::move(*token), TokenType::normal))
      return corrupt(path, fmt::format("{} is not a token with a unique rank", in_quotes(row.substr(0, 64))));
    ++num_tokens;
  }
  if (num_tokens == 0 || num_tokens != spec.tokens.size())
    return corrupt(path, fmt::format("the file has {} tokens, but ranks up to {}", num_tokens, spec.tokens.size()));
  if (auto read = read_added(*files.config, num_tokens, spec); !read) return std::unexpected(read.error());
  for (std::size_t id = num_tokens; id < num_tokens + kNumKimiSpecialTokens; ++id)
    put(spec, id, fmt::format("<|reserved_token_{}|>", id), TokenType::control);
  return spec;
}

}  // namespace quire::hf
