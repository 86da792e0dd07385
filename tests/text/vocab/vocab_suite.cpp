// Tests real vocabularies against the ids of the models' original tokenizers for the texts next to them (ggml-vocab-*.gguf.inp and .out).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "quire/text/detokenizer.h"
#include "text/utf8.h"
#include "text/vocab/load.h"

namespace quire {
namespace {

constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";

std::string vocab_folder() {
  const char* folder = std::getenv("QUIRE_TEST_VOCABS");
  return folder == nullptr ? "" : folder;
}

std::string vocab_path(const std::string& name) {
  return vocab_folder() + "/ggml-vocab-" + name + ".gguf";
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> read_texts(const std::string& path) {
  const std::string all = read_file(path);
  std::vector<std::string> texts;
  for (std::size_t at = 0; at <= all.size();) {
    const std::size_t end = std::min(all.find(kSeparator, at), all.size());
    texts.push_back(all.substr(at, end - at));
    at = end + kSeparator.size();
  }
  if (!texts.empty() && texts.back().empty()) texts.pop_back();
  return texts;
}

std::vector<std::vector<TokenId>> read_ids(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::vector<TokenId>> all;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    all.emplace_back(std::istream_iterator<TokenId>(words), std::istream_iterator<TokenId>());
  }
  return all;
}

class RealVocabulary : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (vocab_folder().empty()) GTEST_SKIP() << "QUIRE_TEST_VOCABS must name a folder with vocabulary files";
    auto loaded = test::load_tokenizer(vocab_path(GetParam()));
    ASSERT_TRUE(loaded.has_value()) << loaded.error().to_string();
    tokenizer_ = std::move(*loaded);
    texts_ = read_texts(vocab_path(GetParam()) + ".inp");
    ASSERT_GT(texts_.size(), 30U);
  }

  std::unique_ptr<const Tokenizer> tokenizer_;
  std::vector<std::string> texts_;
};

TEST_P(RealVocabulary, GivesTheIdsOfTheOriginalTokenizer) {
  const auto expected = read_ids(vocab_path(GetParam()) + ".out");
  ASSERT_EQ(expected.size(), texts_.size());
  for (std::size_t i = 0; i < texts_.size(); ++i)
    EXPECT_EQ(tokenizer_->encode(texts_[i], {.add_special = false}), expected[i]) << "text " << i << ": " << texts_[i];
}

TEST_P(RealVocabulary, RoundTripsTexts) {
  for (const std::string& text : texts_) EXPECT_EQ(tokenizer_->decode(*tokenizer_->encode(text, {.add_special = false})), text);
}

TEST_P(RealVocabulary, StreamsTheSameTextInWholeCharacters) {
  for (const std::string& text : texts_) {
    Detokenizer detokenizer(*tokenizer_, {.start_of_text = true});
    std::string streamed;
    const auto tokens = tokenizer_->encode(text, {.add_special = false});
    for (const TokenId token : *tokens) {
      const std::string_view part = detokenizer.push(token);
      EXPECT_TRUE(is_valid_utf8(part));
      streamed += part;
    }
    streamed += detokenizer.flush();
    EXPECT_EQ(streamed, text);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RealVocabulary,
                         testing::Values("command-r", "deepseek-coder", "deepseek-llm", "falcon", "gpt-2", "llama-bpe", "llama-spm", "mpt",
                                         "phi-3", "qwen2", "qwen35", "refact", "starcoder"),
                         [](const testing::TestParamInfo<const char*>& instance) {
                           std::string name = instance.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

class RefusedVocabulary : public testing::TestWithParam<const char*> {};

TEST_P(RefusedVocabulary, IsRefusedWithAnExplanation) {
  if (vocab_folder().empty()) GTEST_SKIP() << "QUIRE_TEST_VOCABS must name a folder with vocabulary files";
  const auto loaded = test::load_tokenizer(vocab_path(GetParam()));
  ASSERT_FALSE(loaded.has_value());
  EXPECT_EQ(loaded.error().code, ErrorCode::unsupported) << loaded.error().to_string();
  EXPECT_FALSE(loaded.error().remedy.empty());
  RecordProperty("error", loaded.error().to_string());
}

// The refused vocabularies are WordPiece (BERT) and Gemma 4's BPE over characters without pieces.
INSTANTIATE_TEST_SUITE_P(All, RefusedVocabulary, testing::Values("bert-bge", "gemma-4"),
                         [](const testing::TestParamInfo<const char*>& instance) {
                           std::string name = instance.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace quire
