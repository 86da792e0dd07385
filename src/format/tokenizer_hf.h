#pragma once
// Parsers of tokenizer.json and its companion files; private to src/format.
#include <optional>
#include <string>
#include <string_view>

#include "format/json.h"
#include "quire/base/error.h"
#include "quire/base/model_info.h"

namespace quire::hf {

// The parsed files of a folder.
struct Files {
  std::optional<JsonRef> tokenizer = {};       // tokenizer.json
  std::optional<JsonRef> config = {};          // tokenizer_config.json
  std::optional<JsonRef> special_tokens = {};  // special_tokens_map.json
  std::optional<JsonRef> generation = {};      // generation_config.json
  std::optional<JsonRef> model = {};           // config.json, used if generation_config.json names no end-of-generation id
};

// Reads everything that tokenizer_from_hf() reads except the chat template files. `files.tokenizer` must be set.
Result<TokenizerSpec> read_tokenizer(const Files& files);

// Adds special tokens, end-of-generation ids and the chat template from the other files to `spec`, which already has its tokens.
Result<TokenizerSpec> read_companions(TokenizerSpec spec, const Files& files);

// Reads Mistral's tekken.json, whose tokens have ranks as in tiktoken. Control tokens have the lowest ids; the other tokens follow by rank.
// `text` is the content of the file. Errors name `path`.
Result<TokenizerSpec> read_tekken(std::string_view text, const std::string& path);
// Returns the chat template for a version of tekken.json, for folders without one. Returns "" for an unknown version.
std::string tekken_template(std::string_view version);
// Reads Moonshot AI's tiktoken.model (Kimi, Moonlight). 256 special tokens follow the other tokens; tokenizer_config.json names the special
// tokens.
Result<TokenizerSpec> read_tiktoken(std::string_view text, const std::string& path, const Files& files);

// Reads the normalizer and pre_tokenizer of tokenizer.json, which together determine the algorithm. Sets algorithm, split_patterns,
// normalizer and the space prefix of `spec`. Errors: `corrupt`, or `unsupported`, which names the type and its path.
Result<void> read_splitting(const JsonRef& root, TokenizerSpec& spec);

// Reads the post_processor of tokenizer.json. Sets add_bos and add_eos, and also bos and eos if the post_processor names them. Requires
// spec.tokens.
Result<void> read_post_processor(const JsonRef& root, TokenizerSpec& spec);

}  // namespace quire::hf
