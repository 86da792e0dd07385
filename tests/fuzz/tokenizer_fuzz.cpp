// Encodes and decodes any bytes with a small vocabulary. Nothing crashes, and valid UTF-8 is restored unchanged.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "../text/sample_vocabulary.h"
#include "base/check.h"
#include "quire/text/detokenizer.h"
#include "text/stop_strings.h"
#include "text/utf8.h"

namespace {

using quire::Tokenizer;

struct Tokenizers {
  std::unique_ptr<const Tokenizer> bytes = quire::test::make_tokenizer(quire::test::byte_level_spec());
  std::unique_ptr<const Tokenizer> llama3 = [] {
    auto spec = quire::test::byte_level_spec();
    spec.pre = "llama-bpe";
    return quire::test::make_tokenizer(std::move(spec));
  }();
  std::unique_ptr<const Tokenizer> pieces = quire::test::make_tokenizer(quire::test::sentencepiece_spec());
};

void check_round_trip(const Tokenizer& tokenizer, std::string_view text, bool parse_special) {
  const auto tokens = *tokenizer.encode(text, {.add_special = false, .parse_special = parse_special});
  const std::string decoded = tokenizer.decode(tokens, /*skip_special=*/false);
  QUIRE_CHECK(decoded == quire::repair_utf8(text), "decode(encode(x)) is x");
  QUIRE_CHECK(!quire::is_valid_utf8(text) || decoded == text);
}

// Decodes two bytes per token.
void decode_anything(const Tokenizer& tokenizer, std::string_view data) {
  const std::vector<std::string> stops{"hello", "\xC3\xA9", "ll"};
  quire::StopStrings matcher(stops);
  quire::Detokenizer detokenizer(tokenizer);
  for (std::size_t at = 0; at + 2 <= data.size(); at += 2) {
    std::int16_t token = 0;
    std::memcpy(&token, data.data() + at, sizeof(token));
    const std::string_view text = detokenizer.push(token % 300);
    QUIRE_CHECK(quire::is_valid_utf8(text));
    QUIRE_CHECK(quire::is_valid_utf8(matcher.push(text).text));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Tokenizers tokenizers;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const bool parse_special : {false, true}) {
    check_round_trip(*tokenizers.bytes, text, parse_special);
    check_round_trip(*tokenizers.llama3, text, parse_special);
    static_cast<void>(tokenizers.pieces->encode(text, {.add_special = true, .parse_special = parse_special}));
  }
  decode_anything(*tokenizers.bytes, text);
  decode_anything(*tokenizers.pieces, text);
  return 0;
}
