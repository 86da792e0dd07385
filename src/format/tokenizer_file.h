#pragma once
// Tokenizers as files describe them, brought to one TokenizerSpec.
#include <string>

#include "format/gguf.h"
#include "quire/base/error.h"
#include "quire/base/model_info.h"

namespace quire {

// tokenizer.ggml.*. A kind this build has no algorithm for (WordPiece, unigram, RWKV, none) gives Algorithm::unsupported and the reason in
// `unsupported`, so that such a file can still be inspected. Errors: `corrupt` (lists of different lengths, ids outside the vocabulary, a
// malformed merge), naming the key.
Result<TokenizerSpec> tokenizer_from_gguf(const GgufFile& file);

// A Hugging Face folder: tokenizer.json, and where present tokenizer_config.json, special_tokens_map.json, generation_config.json,
// config.json (end-of-generation ids) and chat_template.jinja. Errors: `not_found` (no tokenizer.json), `corrupt`, `unsupported` (a model,
// normalizer, pre-tokenizer or post-processor without an equivalent here), naming file and path.
Result<TokenizerSpec> tokenizer_from_hf(const std::string& folder);

}  // namespace quire
