#pragma once
// Pooling: one vector for a whole prompt, or one for each of its tokens, instead of tokens after it.
#include <cstdint>
#include <string>
#include <vector>

#include "quire/base/ids.h"

namespace quire {

// The tokens that contribute their rows to the vector. A row is the last layer's output for a token, after the final norm. `all`: the rows
// of all tokens, in the order of their positions.
enum class PoolingKind : std::uint8_t { last, first, mean, all };

// Most numbers in the output of one request, which stays in memory until its last row: 64 MiB.
inline constexpr std::uint64_t kMaxPooledValues = std::uint64_t{16} << 20;

// Options of one pooling request. Its output is RequestOutput::pooled.
struct PoolingParams {
  // Only `last` reads the prefix cache; all other kinds compute the whole prompt.
  PoolingKind kind = PoolingKind::last;
  // Not empty: the output is the model's logits for these tokens after the prompt, instead of a row.
  std::vector<TokenId> logits_of{};
};

// How a model's files define its vectors: modules.json and the files that it names, config.json, or the keys of a GGUF file.
struct PoolingInfo {
  PoolingKind kind = PoolingKind::last;
  bool normalize = true;             // to length 1
  bool is_matryoshka = false;        // the first numbers of a vector are a valid vector, too
  std::vector<std::uint32_t> sizes;  // allowed lengths of shortened vectors; empty: any
  // Cross-encoders only: the tokens for no and yes, and the prompt with {query} and {document} in it. Empty: the model is no cross-encoder.
  std::string no_token, yes_token, pair_template;
  std::string unsupported;  // the reason why there are no vectors; empty: there are
};

}  // namespace quire
