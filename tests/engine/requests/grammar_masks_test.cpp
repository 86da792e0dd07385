// The masks that vLLM's `guidance` back end made along recorded answers (tools/record_grammar_masks.py). Where its version of the library
// makes others than ours, ours are those that the library's own Python package makes.
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <cstdlib>
#include <fstream>
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

TEST(GrammarMasks, AreThoseOfVllm) {
  const char* const path = std::getenv("QUIRE_TEST_MODEL");
  if (path == nullptr || !has_structured_output()) GTEST_SKIP() << "QUIRE_TEST_MODEL is not set, or built without llguidance";
  const ModelInfo model = inspect_model(path).value();
  const auto compiler = GrammarCompiler::create(*model.tokenizer, model.vocab_size).value();
  std::ifstream file("tests/golden/grammar_masks.txt");
  ASSERT_TRUE(file) << "tests run in the root of the repository";
  std::vector<GrammarMatcher> grammars;
  std::vector<std::uint32_t> words((model.vocab_size + 31) / 32);
  std::uint32_t num_as_vllm = 0, num_as_newer = 0, num_masks = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string what, kind, digest;
    in >> what;
    if (what == "G") {
      in >> kind >> std::ws;
      std::string text;
      std::getline(in, text);
      auto matcher = compiler->compile({.kind = kind_of(kind), .text = std::string(boost::json::parse(text).as_string())});
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
    EXPECT_TRUE(to_hex(sha.finish()).starts_with(digest)) << line;
  }
  EXPECT_GE(num_as_vllm, 2000U);
  EXPECT_LE(num_as_newer, 100U);
  EXPECT_GT(num_masks, 20'000U);
}

}  // namespace
}  // namespace quire
