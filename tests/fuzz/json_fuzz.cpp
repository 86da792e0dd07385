// Reads any text as tokenizer.json and its companion files, as tekken.json and as tiktoken.model. The result is a spec whose ids are in its
// vocabulary, or an error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "format/tokenizer_hf.h"
#include "fuzz/subject.h"

namespace {

void check_id(const quire::TokenizerSpec& spec, std::optional<quire::TokenId> id) {
  QUIRE_CHECK(!id || (*id >= 0 && static_cast<std::size_t>(*id) < spec.tokens.size()), "an id outside the vocabulary");
}

quire::test::FuzzSubject subject("a readable tokenizer");

void check(const quire::Result<quire::TokenizerSpec>& spec) {
  if (!spec) {
    QUIRE_CHECK(!spec.error().message.empty(), "an error has a message");
    return;
  }
  subject.reached();
  QUIRE_CHECK(spec->types.size() == spec->tokens.size() && !spec->tokens.empty(), "tokens without a type");
  for (const auto id : {spec->bos, spec->eos, spec->unk, spec->pad}) check_id(*spec, id);
  for (const auto* ids : {&spec->eog, &spec->before, &spec->after})
    for (const quire::TokenId id : *ids) check_id(*spec, id);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto strict = quire::parse_json(text, "fuzz", {.reject_duplicate_keys = true});
  const auto value = quire::parse_json(text, "fuzz");
  const auto python = quire::parse_json(text, "fuzz", quire::kPythonJson);
  QUIRE_CHECK(value || !strict, "the strict parser takes no more than the lenient one");
  QUIRE_CHECK(python || !value, "the parser of Python's numbers takes no less than the lenient one");
  check(quire::hf::read_tekken(text, "fuzz"));
  const boost::json::value kimi = {{"tokenizer_class", "TikTokenTokenizer"}};
  check(quire::hf::read_tiktoken(text, "fuzz", {.config = quire::JsonRef(kimi, "fuzz")}));
  if (!value) return 0;
  const quire::JsonRef root(*value, "fuzz");
  check(quire::hf::read_tokenizer({.tokenizer = root, .config = root, .special_tokens = root, .generation = root}));
  return 0;
}
