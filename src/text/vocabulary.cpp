// Stores the tokens as bytes and maps texts to ids. Created once per model and then never changed, so any thread may use it. The lists come
// from a model's file: their lengths and ids are checked, and contradictions are an error `corrupt`.
#include "text/vocabulary.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/utf8.h"

namespace quire {
namespace {

using TokenType = TokenizerSpec::TokenType;

constexpr const char* kConvertAgain = "convert the model again";

int hex_digit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

// Returns the byte NN of a token <0xNN>.
std::optional<unsigned char> parse_byte_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return std::nullopt;
  const int high = hex_digit(text[3]), low = hex_digit(text[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<unsigned char>(high * 16 + low);
}

bool is_added(TokenType type) {
  return type == TokenType::control || type == TokenType::unknown || type == TokenType::user_defined;
}

std::string decode_text(std::string_view text, TokenType type, bool byte_level) {
  if (byte_level) {
    if (is_added(type)) return std::string(text);
    return from_byte_alphabet(text).value_or(std::string(text));
  }
  if (type == TokenType::byte) {
    const auto byte = parse_byte_token(text);
    return byte ? std::string(1, static_cast<char>(*byte)) : std::string(text);
  }
  return with_plain_spaces(text);
}

Result<void> check_ids(const TokenizerSpec& spec) {
  const auto bad = [&](TokenId id) { return id < 0 || static_cast<std::size_t>(id) >= spec.tokens.size(); };
  const std::array<std::pair<const char*, std::optional<TokenId>>, 4> named{
      {{"bos", spec.bos}, {"eos", spec.eos}, {"unk", spec.unk}, {"pad", spec.pad}}};
  for (const auto& [name, id] : named)
    if (id && bad(*id))
      return fail(ErrorCode::corrupt, std::string("tokenizer ") + name + " id", std::to_string(*id) + " is not in the vocabulary",
                  kConvertAgain);
  for (const auto* ids : {&spec.before, &spec.after})
    if (const auto found = std::ranges::find_if(*ids, bad); found != ids->end())
      return fail(ErrorCode::corrupt, "tokenizer ids before or after a text", std::to_string(*found) + " is not in the vocabulary",
                  kConvertAgain);
  for (const TokenId id : spec.eog)
    if (bad(id))
      return fail(ErrorCode::corrupt, "tokenizer end-of-generation ids", std::to_string(id) + " is not in the vocabulary", kConvertAgain);
  return {};
}

Result<void> check_lists(const TokenizerSpec& spec) {
  const std::size_t count = spec.tokens.size();
  if (count == 0) return fail(ErrorCode::corrupt, "tokenizer tokens", "the vocabulary is empty", kConvertAgain);
  if (count > static_cast<std::size_t>(std::numeric_limits<TokenId>::max()))
    return fail(ErrorCode::corrupt, "tokenizer tokens",
                "the vocabulary has " + std::to_string(count) + " tokens, more than there are token ids", kConvertAgain);
  if (!spec.types.empty() && spec.types.size() != count) {
    return fail(ErrorCode::corrupt, "tokenizer token types",
                "there are " + std::to_string(spec.types.size()) + " types, but " + std::to_string(count) + " tokens", kConvertAgain);
  }
  if (!spec.scores.empty() && spec.scores.size() != count) {
    return fail(ErrorCode::corrupt, "tokenizer scores",
                "there are " + std::to_string(spec.scores.size()) + " scores, but " + std::to_string(count) + " tokens", kConvertAgain);
  }
  // A NaN score would make the order of tokens undefined.
  const auto unordered = std::ranges::find_if(spec.scores, [](float score) { return std::isnan(score); });
  if (unordered != spec.scores.end()) {
    return fail(ErrorCode::corrupt, "tokenizer scores",
                "the score of token " + std::to_string(unordered - spec.scores.begin()) + " is not a number", kConvertAgain);
  }
  std::size_t num_bytes = 0;
  for (const std::string& token : spec.tokens) num_bytes += token.size();
  if (num_bytes > std::numeric_limits<std::uint32_t>::max())
    return fail(ErrorCode::corrupt, "tokenizer tokens", "the texts of all tokens have more than 4 GiB", kConvertAgain);
  return {};
}

}  // namespace

std::optional<std::string> from_byte_alphabet(std::string_view text) {
  if (!is_valid_utf8(text)) return std::nullopt;
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t character = next_code_point(text, at);
    if (character >= kByteAlphabet.byte.size() || kByteAlphabet.byte[character] < 0) return std::nullopt;
    bytes += static_cast<char>(kByteAlphabet.byte[character]);
  }
  return bytes;
}

std::string with_plain_spaces(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t symbol = std::min(text.find(kSpaceSymbol, at), text.size());
    out.append(text, at, symbol - at);
    if (symbol < text.size()) out += ' ';
    at = symbol + kSpaceSymbol.size();
  }
  return out;
}

std::string with_marked_spaces(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char byte : text)
    if (byte == ' ')
      out += kSpaceSymbol;
    else
      out += byte;
  return out;
}

Result<Vocabulary> Vocabulary::create(const TokenizerSpec& spec) {
  if (auto lists = check_lists(spec); !lists) return std::unexpected(lists.error());
  if (auto ids = check_ids(spec); !ids) return std::unexpected(ids.error());
  const bool byte_level = spec.algorithm == TokenizerSpec::Algorithm::bpe_bytes;
  Vocabulary vocabulary;
  vocabulary.types_ = spec.types.empty() ? std::vector<TokenType>(spec.tokens.size(), TokenType::normal) : spec.types;
  vocabulary.byte_tokens_.fill(-1);
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) vocabulary.add(static_cast<TokenId>(id), spec.tokens[id], byte_level);
  vocabulary.index(byte_level);
  return vocabulary;
}

void Vocabulary::add(TokenId token, std::string_view text, bool byte_level) {
  TokenType& kind = types_[static_cast<std::size_t>(token)];
  // Merging cannot produce a text outside the byte alphabet, so such a token is unused.
  if (byte_level && kind == TokenType::normal && !from_byte_alphabet(text)) kind = TokenType::unused;
  if (!byte_level && kind == TokenType::normal && parse_byte_token(text)) kind = TokenType::byte;
  if (!byte_level && kind == TokenType::byte) {
    if (const auto byte = parse_byte_token(text)) byte_tokens_[*byte] = token;
  }
  const std::string decoded = decode_text(text, kind, byte_level);
  arena_.insert(arena_.end(), decoded.begin(), decoded.end());
  offsets_.push_back(static_cast<std::uint32_t>(arena_.size()));
}

// Builds the look-up tables. Inserts user-defined tokens last: if a normal token has the same text, merging must produce the normal token.
void Vocabulary::index(bool byte_level) {
  pieces_.reserve(types_.size());
  const auto count = static_cast<TokenId>(types_.size());
  for (TokenId token = 0; token < count; ++token) {
    const TokenType kind = type(token);
    const std::string_view text = bytes(token);
    max_token_bytes_ = std::max(max_token_bytes_, text.size());
    if (is_added(kind) && !text.empty()) added_.emplace(text, token);
    if (kind == TokenType::normal || (kind == TokenType::unused && !byte_level)) pieces_.emplace(text, token);
  }
  for (const auto& [text, token] : added_)
    if (type(token) == TokenType::user_defined) pieces_.emplace(text, token);
  for (const auto& [text, token] : pieces_) max_piece_bytes_ = std::max(max_piece_bytes_, text.size());
}

std::string_view Vocabulary::bytes(TokenId token) const {
  if (!contains(token)) return {};
  const auto at = static_cast<std::size_t>(token);
  return {arena_.data() + offsets_[at], offsets_[at + 1] - offsets_[at]};
}

std::optional<TokenId> Vocabulary::find_piece(std::string_view bytes) const {
  if (bytes.size() > max_piece_bytes_) return std::nullopt;
  const auto found = pieces_.find(bytes);
  return found == pieces_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<TokenId> Vocabulary::find_added(std::string_view text) const {
  const auto found = added_.find(text);
  return found == added_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<TokenId> Vocabulary::byte_token(unsigned char byte) const {
  return byte_tokens_[byte] < 0 ? std::nullopt : std::optional(byte_tokens_[byte]);
}

}  // namespace quire
