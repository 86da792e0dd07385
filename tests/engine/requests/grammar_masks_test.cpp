// The masks must equal vLLM's `guidance` back end along recorded answers (tools/record/grammar_masks.py). If vLLM's version of the library
// differs from ours, ours must match the library's own Python package.
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "base/digest.h"
#include "quire/engine.h"
#include "runtime/grammar/grammar_matcher.h"

namespace quire {
namespace {

constexpr std::uint32_t kNumControl = 17;  // the default model's first ids

StructuredOutput::Kind kind_of(const std::string& name) {
  if (name == "regex") return StructuredOutput::Kind::regex;
  return name == "lark" ? StructuredOutput::Kind::lark : StructuredOutput::Kind::json_schema;
}

// vLLM passes a schema to llguidance unchanged. Quire's own rules allow more spellings, unless the schema's settings name escapes.
StructuredOutput as_llguidance(StructuredOutput::Kind kind, std::string text) {
  constexpr std::string_view kSchema = "%json {", kLeft = R"(%json {"x-guidance":{"json_allow_general_unicode_escapes":false},)";
  if (kind == StructuredOutput::Kind::lark)
    for (std::size_t at = text.find(kSchema); at != std::string::npos; at = text.find(kSchema, at + kLeft.size()))
      text.replace(at, kSchema.size(), kLeft);
  if (kind != StructuredOutput::Kind::json_schema) return {.kind = kind, .text = std::move(text)};
  boost::json::value schema = boost::json::parse(text);
  schema.as_object()["x-guidance"] = {{"json_allow_general_unicode_escapes", false}};
  return {.kind = StructuredOutput::Kind::lark, .text = "start: %json " + boost::json::serialize(schema)};
}

TEST(GrammarMasks, EqualVllmsMasks) {
  const char* const path = std::getenv("QUIRE_TEST_MODEL");
  if (path == nullptr || !has_structured_output()) GTEST_SKIP() << "QUIRE_TEST_MODEL is not set, or built without llguidance";
  const ModelInfo model = inspect_model(path).value();
  const auto compiler = GrammarCompiler::create(*model.tokenizer, model.vocab_size).value();
  std::ifstream file("tests/golden/grammar_masks.txt");
  ASSERT_TRUE(file) << "tests run in the root of the repository";
  std::vector<GrammarMatcher> grammars;
  std::vector<std::uint32_t> words((model.vocab_size + 31) / 32);
  std::set<std::size_t> as_vllm;  // grammars with answers that have the masks of vLLM's version
  std::uint32_t num_as_vllm = 0, num_as_newer = 0, num_masks = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string what, kind, digest;
    in >> what;
    if (what == "G") {
      in >> kind >> std::ws;
      std::string text;
      std::getline(in, text);
      auto matcher = compiler->compile(as_llguidance(kind_of(kind), std::string(boost::json::parse(text).as_string())));
      ASSERT_TRUE(matcher.has_value()) << text << matcher.error().to_string();
      grammars.push_back(std::move(*matcher));
      continue;
    }
    std::size_t grammar = 0;
    in >> grammar >> digest;
    if (what == "D") in >> digest;
    GrammarMatcher matcher = grammars.at(grammar).clone();
    Sha256 sha;
    const auto add_mask = [&] {
      ASSERT_TRUE(matcher.fill(words)) << matcher.error();
      bool may_end = false;
      for (const TokenId end : model.tokenizer->eog) may_end |= (words[static_cast<std::size_t>(end) / 32] >> end % 32 & 1U) != 0;
      words[0] &= ~((1U << kNumControl) - 1);
      const auto flag = static_cast<std::byte>(may_end);
      sha.update(std::as_bytes(std::span(words)));
      sha.update({&flag, 1});
      ++num_masks;
    };
    add_mask();
    for (TokenId token = 0; in >> token;) {
      ASSERT_TRUE(matcher.accept(token)) << token << " of " << line << matcher.error();
      add_mask();
    }
    ++(what == "D" ? num_as_newer : num_as_vllm);
    if (what == "S") as_vllm.insert(grammar);
    EXPECT_TRUE(to_hex(sha.finish()).starts_with(digest)) << line;
  }
  EXPECT_GE(grammars.size(), 28U) << "18 schemas, 6 regular expressions and 4 Lark grammars";
  EXPECT_GE(as_vllm.size(), 27U) << "only multipleOf has other masks in vLLM's version";
  EXPECT_GE(num_as_vllm, 2000U);
  EXPECT_LE(num_as_newer, 100U);
  EXPECT_GT(num_masks, 20'000U);
}

}  // namespace
}  // namespace quire
