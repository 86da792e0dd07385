// Encodes and decodes texts with added tokens, normalizer, encoder and vocabulary. Objects are immutable after create(), so the server's
// thread and the job pool call them concurrently. A prompt may have any size and content: each step is at most nearly linear and stops
// early when a token limit is exceeded.
#include "quire/text/tokenizer.h"

#include <algorithm>
#include <string>

#include "quire/text/detokenizer.h"
#include "text/added_tokens.h"
#include "text/nfc.h"
#include "text/text_encoder.h"
#include "text/utf8.h"
#include "text/vocabulary.h"

namespace quire {
namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char byte) { return static_cast<unsigned char>(byte) < 0x80; });
}

// Positions at which a space is added before text:
// - never;
// - first: at the start of the text, unless the text begins with a space;
// - always: before each piece between added tokens, unless the piece begins with a space;
// - normalized: before each normalized part, even if it begins with a space.
enum class SpacePrefix : std::uint8_t { never, first, always, normalized };

struct Settings {
  bool nfc = false;
  SpacePrefix space_prefix = SpacePrefix::never;
  std::vector<TokenId> before, after;  // ids added before and after a text
  bool escapes_spaces = false;         // U+2581 counts as a space (SentencePiece)
  bool normalizes_spaces = false;      // spaces become U+2581 before the search for normalized added tokens
  bool strips_leading_space = false;
  std::optional<TokenId> bos, eos;
  std::vector<TokenId> eog;
};

class TokenizerImpl final : public Tokenizer {
 public:
  TokenizerImpl(Vocabulary vocabulary, const TokenizerSpec& spec, Settings settings)
      : vocabulary_(std::move(vocabulary)),
        settings_(std::move(settings)),
        added_(spec, vocabulary_, [this](std::string_view text) { return normalized(text); }) {}

  [[nodiscard]] const Vocabulary& vocabulary() const { return vocabulary_; }
  void set_encoder(std::unique_ptr<const TextEncoder> encoder) { encoder_ = std::move(encoder); }

  [[nodiscard]] Result<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options) const override {
    if (text.size() >= kMaxTextBytes)
      return fail(ErrorCode::too_large, "text", std::to_string(text.size()) + " bytes are too many to tokenize", "send less than 1 GiB");
    std::string repaired;
    if (!is_valid_utf8(text)) {
      repaired = repair_utf8(text);
      text = repaired;
    }
    std::vector<TokenId> out;
    if (options.add_special) out = settings_.before;
    if (auto encoded = encode_parts(text, options, out); !encoded) return std::unexpected(std::move(encoded.error()));
    if (options.add_special) out.insert(out.end(), settings_.after.begin(), settings_.after.end());
    if (out.size() > options.max_tokens)
      return fail(ErrorCode::too_large, "text", "the text has more than " + std::to_string(options.max_tokens) + " tokens",
                  "shorten the text");
    return out;
  }

  [[nodiscard]] std::string decode(std::span<const TokenId> tokens, bool skip_special) const override {
    Detokenizer detokenizer(*this, {.skip_special = skip_special, .start_of_text = true});
    std::string text;
    for (const TokenId token : tokens) text += detokenizer.push(token);
    text += detokenizer.flush();
    return text;
  }

  [[nodiscard]] std::string_view token_bytes(TokenId token) const override { return vocabulary_.bytes(token); }
  [[nodiscard]] std::size_t max_token_bytes() const override { return vocabulary_.max_token_bytes(); }
  [[nodiscard]] std::optional<TokenId> find(std::string_view text) const override {
    const auto added = vocabulary_.find_added(text);
    return added ? added : vocabulary_.find_piece(text);
  }
  [[nodiscard]] bool is_special(TokenId token) const override {
    if (!vocabulary_.contains(token)) return false;
    const auto type = vocabulary_.type(token);
    return type == TokenizerSpec::TokenType::control || type == TokenizerSpec::TokenType::unknown;
  }
  [[nodiscard]] std::uint32_t vocab_size() const override { return vocabulary_.size(); }
  [[nodiscard]] std::optional<TokenId> bos() const override { return settings_.bos; }
  [[nodiscard]] std::optional<TokenId> eos() const override { return settings_.eos; }
  [[nodiscard]] std::span<const TokenId> eog() const override { return settings_.eog; }
  [[nodiscard]] bool strips_leading_space() const override { return settings_.strips_leading_space; }

 private:
  // Encodes a text with added tokens. Stops early when `out` exceeds `options.max_tokens`.
  Result<void> encode_parts(std::string_view text, const EncodeOptions& options, std::vector<TokenId>& out) const {
    std::size_t at = 0;
    while (const auto match = added_.find(text, at, options.parse_special)) {
      if (auto encoded = encode_part(text.substr(at, match->begin - at), at == 0, options, out); !encoded) return encoded;
      out.push_back(match->token);
      if (out.size() > options.max_tokens) return {};
      at = match->end;
    }
    return encode_part(text.substr(at), at == 0, options, out);
  }

  // Encodes the text between two added tokens that were matched in the raw text. Normalizes the text as a whole. `at_start`: no text
  // precedes it.
  Result<void> encode_part(std::string_view raw, bool at_start, const EncodeOptions& options, std::vector<TokenId>& out) const {
    if (raw.empty()) return {};
    const std::string text = normalized(raw);
    std::size_t at = 0;
    while (const auto match = added_.find(text, at, options.parse_special, AddedTokens::TextForm::normalized)) {
      const std::string_view part = std::string_view(text).substr(at, match->begin - at);
      if (auto encoded = encode_plain(part, at_start && at == 0, options, out); !encoded) return encoded;
      out.push_back(match->token);
      if (out.size() > options.max_tokens) return {};
      at = match->end;
    }
    return encode_plain(std::string_view(text).substr(at), at_start && at == 0, options, out);
  }

  // Returns the text normalized as the file specifies. The encoder reads U+2581 as a space.
  [[nodiscard]] std::string normalized(std::string_view text) const {
    std::string changed = settings_.nfc && !is_ascii(text) ? normalize_nfc(text) : std::string(text);
    if (settings_.normalizes_spaces) changed = with_marked_spaces(changed);
    if (settings_.space_prefix == SpacePrefix::normalized) changed.insert(0, kSpaceSymbol);
    return changed;
  }

  Result<void> encode_plain(std::string_view part, bool at_start, const EncodeOptions& options, std::vector<TokenId>& out) const {
    if (part.empty()) return {};
    std::string changed;
    if (wants_prefix(part, at_start)) {
      changed = ' ' + std::string(part);
      part = changed;
    }
    return encoder_->encode(part, options.max_tokens, options.cancellation, out);
  }

  [[nodiscard]] bool wants_prefix(std::string_view part, bool at_start) const {
    if (settings_.space_prefix != SpacePrefix::always && !(settings_.space_prefix == SpacePrefix::first && at_start)) return false;
    return !(part.starts_with(' ') || (settings_.escapes_spaces && part.starts_with(kSpaceSymbol)));
  }

  Vocabulary vocabulary_;
  Settings settings_;
  AddedTokens added_;
  std::unique_ptr<const TextEncoder> encoder_;
};

Result<Settings> make_settings(const TokenizerSpec& spec) {
  if (!spec.normalizer.empty() && spec.normalizer != "nfc")
    return fail(ErrorCode::unsupported, "tokenizer normalizer", "\"" + spec.normalizer + "\" is not supported",
                "use a tokenizer with the normalizer nfc");
  if (spec.add_bos && !spec.bos)
    return fail(ErrorCode::corrupt, "tokenizer bos id", "the file enables this token but does not define it", "convert the model again");
  if (spec.add_eos && !spec.eos)
    return fail(ErrorCode::corrupt, "tokenizer eos id", "the file enables this token but does not define it", "convert the model again");
  Settings settings{
      .nfc = spec.normalizer == "nfc", .before = spec.before, .after = spec.after, .bos = spec.bos, .eos = spec.eos, .eog = spec.eog};
  if (settings.before.empty() && spec.add_bos) settings.before = {*spec.bos};
  if (settings.after.empty() && spec.add_eos) settings.after = {*spec.eos};
  settings.escapes_spaces = spec.algorithm == TokenizerSpec::Algorithm::sentencepiece;
  settings.normalizes_spaces = settings.escapes_spaces && !spec.replaces_spaces_after_added_tokens;
  settings.strips_leading_space = settings.escapes_spaces && spec.add_space_prefix;
  // Byte-level BPE supports only a prefix that is not added before an existing space.
  if (spec.add_space_prefix && spec.space_prefix_unless_present)
    settings.space_prefix = spec.space_prefix_first_only ? SpacePrefix::first : SpacePrefix::always;
  else if (spec.add_space_prefix && settings.escapes_spaces)
    settings.space_prefix = SpacePrefix::normalized;
  if (spec.eos) settings.eog.push_back(*spec.eos);
  std::ranges::sort(settings.eog);
  settings.eog.erase(std::unique(settings.eog.begin(), settings.eog.end()), settings.eog.end());
  return settings;
}

}  // namespace

Result<std::unique_ptr<const Tokenizer>> Tokenizer::create(const TokenizerSpec& spec) {
  if (spec.algorithm == TokenizerSpec::Algorithm::unsupported) {
    return fail(ErrorCode::unsupported, "tokenizer",
                spec.unsupported.empty() ? "the tokenizer algorithm is not supported" : spec.unsupported,
                "use a model with byte-level BPE or SentencePiece's BPE");
  }
  auto settings = make_settings(spec);
  if (!settings) return std::unexpected(settings.error());
  auto vocabulary = Vocabulary::create(spec);
  if (!vocabulary) return std::unexpected(vocabulary.error());
  auto tokenizer = std::make_unique<TokenizerImpl>(std::move(*vocabulary), spec, std::move(*settings));
  const bool bytes = spec.algorithm == TokenizerSpec::Algorithm::bpe_bytes;
  auto encoder = bytes ? make_bpe_encoder(spec, tokenizer->vocabulary()) : make_sentencepiece_encoder(spec, tokenizer->vocabulary());
  if (!encoder) return std::unexpected(encoder.error());
  tokenizer->set_encoder(std::move(*encoder));
  return tokenizer;
}

}  // namespace quire
