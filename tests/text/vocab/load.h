#pragma once
// Loads the tokenizer of a GGUF file or of a Hugging Face folder.
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "format/gguf.h"
#include "format/tokenizer_file.h"
#include "quire/text/tokenizer.h"

namespace quire::test {

inline Result<TokenizerSpec> load_spec(const std::string& path) {
  if (std::filesystem::is_directory(path)) return tokenizer_from_hf(path);
  auto file = GgufFile::open(path);
  if (!file) return std::unexpected(file.error());
  return tokenizer_from_gguf(*file);
}

inline Result<std::unique_ptr<const Tokenizer>> load_tokenizer(const std::string& path) {
  auto spec = load_spec(path);
  if (!spec) return std::unexpected(spec.error());
  return Tokenizer::create(*spec);
}

}  // namespace quire::test
