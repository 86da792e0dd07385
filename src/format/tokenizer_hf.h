#pragma once
// tokenizer.json and the files beside it, parsed; private to the format room.
#include <optional>

#include "format/json.h"
#include "quire/base/error.h"
#include "quire/base/model_info.h"

namespace quire::hf {

// The files of a folder, parsed.
struct Files {
  JsonRef tokenizer;                           // tokenizer.json
  std::optional<JsonRef> config = {};          // tokenizer_config.json
  std::optional<JsonRef> special_tokens = {};  // special_tokens_map.json
  std::optional<JsonRef> generation = {};      // generation_config.json
  std::optional<JsonRef> model = {};           // config.json, asked where generation_config.json names no end-of-generation id
};

// As tokenizer_from_hf, without chat_template.jinja.
Result<TokenizerSpec> read_tokenizer(const Files& files);

// tokenizer.json's normalizer and pre_tokenizer, which together tell the algorithm. Sets algorithm, split_patterns, normalizer and the
// space prefix of `spec`. Errors: `unsupported`, naming the type and its path; `corrupt`.
Result<void> read_splitting(const JsonRef& root, TokenizerSpec& spec);

// tokenizer.json's post_processor. Sets add_bos, add_eos, and bos and eos where it names them. Needs spec.tokens.
Result<void> read_post_processor(const JsonRef& root, TokenizerSpec& spec);

}  // namespace quire::hf
