#pragma once
// The parts of tokenizer.json that decide how text is cut, private to the format room.
#include "format/json.h"
#include "quire/error.h"
#include "quire/model_info.h"

namespace quire::hf {

// tokenizer.json's normalizer and pre_tokenizer, which together tell the algorithm. Sets algorithm, split_patterns, normalizer and the
// space prefix of `spec`. Errors: `unsupported`, naming the type and its path; `corrupt`.
Result<void> read_splitting(const JsonRef& root, TokenizerSpec& spec);

// tokenizer.json's post_processor. Sets add_bos, add_eos, and bos and eos where it names them. Needs spec.tokens.
Result<void> read_post_processor(const JsonRef& root, TokenizerSpec& spec);

}  // namespace quire::hf
