// Encoding and decoding, put together from added tokens, normaliser, encoder and vocabulary. Immutable after create(); the server calls it
// from its pool of parsing threads and from its own thread at once. A prompt may be of any size and content: it is linear or nearly so in
// each part, and stops early where a limit of tokens is passed.
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

enum class SpacePrefix : std::uint8_t { never, first, always };

struct Settings {
  bool nfc = false;
  SpacePrefix space_prefix = SpacePrefix::never;
  bool prefix_unless_present = false;
  bool add_bos = false, add_eos = false;
  bool marks_spaces = false;  // U+2581 is a space (SentencePiece)
  bool strips_leading_space = false;
  std::optional<TokenId> bos, eos;
  std::vector<TokenId> eog;
};

class TokenizerImpl final : public Tokenizer {
 public:
  TokenizerImpl(Vocabulary vocabulary, std::span<const TokenizerSpec::AddedToken> added, Settings settings)
      : vocabulary_(std::move(vocabulary)), added_(vocabulary_, added), settings_(std::move(settings)) {}

  [[nodiscard]] const Vocabulary& vocabulary() const { return vocabulary_; }
  void set_encoder(std::unique_ptr<const TextEncoder> encoder) { encoder_ = std::move(encoder); }

  [[nodiscard]] Result<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options) const override {
    if (text.size() >= kMaxTextBytes)
      return fail(ErrorCode::too_large, "text", std::to_string(text.size()) + " bytes are too many to encode", "send less than 1 GiB");
    std::string repaired;
    if (!is_valid_utf8(text)) {
      repaired = repair_utf8(text);
      text = repaired;
    }
    std::vector<TokenId> out;
    if (options.add_special && settings_.add_bos && settings_.bos) out.push_back(*settings_.bos);
    if (auto encoded = encode_parts(text, options, out); !encoded) return std::unexpected(std::move(encoded.error()));
    if (options.add_special && settings_.add_eos && settings_.eos) out.push_back(*settings_.eos);
    if (out.size() > options.max_tokens)
      return fail(ErrorCode::too_large, "text", "it gives more than " + std::to_string(options.max_tokens) + " tokens", "shorten it");
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
  // Stops early once `out` holds more ids than it may.
  Result<void> encode_parts(std::string_view text, const EncodeOptions& options, std::vector<TokenId>& out) const {
    std::size_t at = 0;
    while (const auto match = added_.find(text, at, options.parse_special)) {
      if (auto encoded = encode_plain(text.substr(at, match->begin - at), at == 0, options.max_tokens, out); !encoded) return encoded;
      out.push_back(match->token);
      if (out.size() > options.max_tokens) return {};
      at = match->end;
    }
    return encode_plain(text.substr(at), at == 0, options.max_tokens, out);
  }

  // `at_start`: nothing comes before this part of the text.
  Result<void> encode_plain(std::string_view part, bool at_start, std::size_t max_size, std::vector<TokenId>& out) const {
    if (part.empty()) return {};
    std::string changed;
    if (settings_.nfc && !is_ascii(part)) {
      changed = normalize_nfc(part);
      part = changed;
    }
    if (wants_prefix(part, at_start)) {
      changed = ' ' + std::string(part);
      part = changed;
    }
    return encoder_->encode(part, max_size, out);
  }

  [[nodiscard]] bool wants_prefix(std::string_view part, bool at_start) const {
    if (settings_.space_prefix == SpacePrefix::never || (settings_.space_prefix == SpacePrefix::first && !at_start)) return false;
    const bool present = part.starts_with(' ') || (settings_.marks_spaces && part.starts_with(kSpaceMark));
    return !(settings_.prefix_unless_present && present);
  }

  Vocabulary vocabulary_;
  AddedTokens added_;
  Settings settings_;
  std::unique_ptr<const TextEncoder> encoder_;
};

Result<Settings> make_settings(const TokenizerSpec& spec) {
  if (!spec.normalizer.empty() && spec.normalizer != "nfc")
    return fail(ErrorCode::unsupported, "tokenizer normalizer", "\"" + spec.normalizer + "\" is not known", "only nfc is");
  if (spec.add_bos && !spec.bos) return fail(ErrorCode::corrupt, "tokenizer bos id", "the file asks for it but does not name it");
  if (spec.add_eos && !spec.eos) return fail(ErrorCode::corrupt, "tokenizer eos id", "the file asks for it but does not name it");
  Settings settings{
      .nfc = spec.normalizer == "nfc", .add_bos = spec.add_bos, .add_eos = spec.add_eos, .bos = spec.bos, .eos = spec.eos, .eog = spec.eog};
  settings.marks_spaces = spec.algorithm == TokenizerSpec::Algorithm::sentencepiece;
  settings.strips_leading_space = settings.marks_spaces && spec.add_space_prefix;
  settings.prefix_unless_present = spec.space_prefix_unless_present;
  // Byte-level BPE only knows the prefix that is left out where a space is present already.
  if (spec.add_space_prefix && (settings.marks_spaces || spec.space_prefix_unless_present))
    settings.space_prefix = spec.space_prefix_first_only ? SpacePrefix::first : SpacePrefix::always;
  if (spec.eos) settings.eog.push_back(*spec.eos);
  std::ranges::sort(settings.eog);
  settings.eog.erase(std::unique(settings.eog.begin(), settings.eog.end()), settings.eog.end());
  return settings;
}

}  // namespace

Result<std::unique_ptr<const Tokenizer>> Tokenizer::create(const TokenizerSpec& spec) {
  if (spec.algorithm == TokenizerSpec::Algorithm::unsupported) {
    return fail(ErrorCode::unsupported, "tokenizer", spec.unsupported.empty() ? "a kind this build does not know" : spec.unsupported,
                "use a model with byte-level BPE or SentencePiece's BPE");
  }
  auto settings = make_settings(spec);
  if (!settings) return std::unexpected(settings.error());
  auto vocabulary = Vocabulary::create(spec);
  if (!vocabulary) return std::unexpected(vocabulary.error());
  auto tokenizer = std::make_unique<TokenizerImpl>(std::move(*vocabulary), spec.added_tokens, std::move(*settings));
  const bool bytes = spec.algorithm == TokenizerSpec::Algorithm::bpe_bytes;
  auto encoder = bytes ? make_bpe_encoder(spec, tokenizer->vocabulary()) : make_sentencepiece_encoder(spec, tokenizer->vocabulary());
  if (!encoder) return std::unexpected(encoder.error());
  tokenizer->set_encoder(std::move(*encoder));
  return tokenizer;
}

}  // namespace quire
