#pragma once
// Options of pooling, which returns vectors instead of generated tokens: one vector for a whole prompt, or one for each of its tokens.
#include <cstdint>
#include <string>
#include <vector>

#include "quire/base/ids.h"

namespace quire {

// The tokens whose rows make the vector. A token's row is the output of the last layer after the final norm. `all`: the result is the rows
// of all tokens, in order.
enum class PoolingKind : std::uint8_t { last, first, mean, all };

// Maximum number of values in the output of one request, which stays in memory until its last row is computed: 64 MiB.
inline constexpr std::uint64_t kMaxPooledValues = std::uint64_t{16} << 20;

// Options of one pooling request. Its output is RequestOutput::pooled.
struct PoolingParams {
  // Only `last` uses hits of the prefix cache; all other kinds compute the whole prompt.
  PoolingKind kind = PoolingKind::last;
  // If not empty, the output is the model's logits for these tokens after the prompt, instead of rows.
  std::vector<TokenId> logits_of{};
};

// How a model's files define its embedding vectors: in modules.json and the files that it names, in config.json, or in the keys of a GGUF
// file.
struct PoolingInfo {
  PoolingKind kind = PoolingKind::last;
  bool normalize = true;             // scale vectors to length 1
  bool is_matryoshka = false;        // the first values of a vector are themselves a valid vector (Matryoshka embeddings)
  std::vector<std::uint32_t> sizes;  // allowed lengths of shortened vectors; empty: any
  // Cross-encoders only: the tokens for "no" and "yes", and the text of the prompt with the placeholders {query} and {document}. Empty: the
  // model is no cross-encoder.
  std::string no_token, yes_token, pair_template;
  std::string unsupported;  // the reason why the model gives no vectors; empty: it gives vectors
};

}  // namespace quire
