#pragma once
// Reads a model's tokenizer files into a `TokenizerSpec`.
#include <string>

#include "format/gguf.h"
#include "quire/base/error.h"
#include "quire/base/model_info.h"

namespace quire {

// Reads the keys tokenizer.ggml.*. If this build cannot run the tokenizer (WordPiece, unigram, RWKV, none), returns Algorithm::unsupported
// with the reason in `unsupported`, so that the file can still be inspected. Errors: `corrupt` (lists of different lengths, ids outside the
// vocabulary, a malformed merge); the error names the key.
Result<TokenizerSpec> tokenizer_from_gguf(const GgufFile& file);

// Reads a Hugging Face folder: tokenizer.json (or tekken.json or tiktoken.model) and, if present, tokenizer_config.json,
// special_tokens_map.json, generation_config.json, config.json (end-of-generation ids) and the chat template files. Errors: `not_found` (no
// tokenizer file), `corrupt`, or `unsupported` (a model, normalizer, pre-tokenizer or post-processor that quire does not implement). The
// error names the file and the path.
Result<TokenizerSpec> tokenizer_from_hf(const std::string& folder);

}  // namespace quire
