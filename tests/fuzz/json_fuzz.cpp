// Any text as tokenizer.json and as its companions: a spec whose ids lie in its vocabulary, or an error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "format/tokenizer_hf.h"

namespace {

void check_id(const quire::TokenizerSpec& spec, std::optional<quire::TokenId> id) {
  QUIRE_CHECK(!id || (*id >= 0 && static_cast<std::size_t>(*id) < spec.tokens.size()), "an id outside the vocabulary");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto strict = quire::parse_json(text, "fuzz", {.reject_duplicate_keys = true});
  const auto value = quire::parse_json(text, "fuzz");
  QUIRE_CHECK(value || !strict, "the strict parser takes more than the lenient one");
  if (!value) return 0;
  const quire::JsonRef root(*value, "fuzz");
  const auto spec = quire::hf::read_tokenizer({.tokenizer = root, .config = root, .special_tokens = root, .generation = root});
  if (!spec) {
    QUIRE_CHECK(!spec.error().message.empty(), "an error without a message");
    return 0;
  }
  QUIRE_CHECK(spec->types.size() == spec->tokens.size() && !spec->tokens.empty(), "tokens without a type");
  for (const auto id : {spec->bos, spec->eos, spec->unk, spec->pad}) check_id(*spec, id);
  for (const quire::TokenId id : spec->eog) check_id(*spec, id);
  return 0;
}
