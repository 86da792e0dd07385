#pragma once
// One vector for a whole prompt, or one for each of its tokens, instead of tokens behind it.
#include <cstdint>
#include <string>
#include <vector>

#include "quire/base/ids.h"

namespace quire {

// Of which tokens' rows the vector is made. A row is what the last layer makes of a token, after the final norm. `all`: of each, one behind
// the other, in the order of their positions.
enum class PoolingKind : std::uint8_t { last, first, mean, all };

// Of one request, which waits in memory for its last row: 64 MiB.
inline constexpr std::uint64_t kMaxPooledNumbers = std::uint64_t{16} << 20;

// What one pooling request asks for. Its output is RequestOutput::pooled.
struct PoolingParams {
  // But for the last token's row, no prefix cache is read: the whole prompt is computed.
  PoolingKind kind = PoolingKind::last;
  // Not empty: instead of a row, the logits that the model gives these tokens behind the prompt.
  std::vector<TokenId> logits_of{};
};

// How a model's files say that its vectors are made: modules.json and what it names, config.json, or the keys of a GGUF file.
struct PoolingInfo {
  PoolingKind kind = PoolingKind::last;
  bool normalize = true;             // to length 1
  bool is_matryoshka = false;        // a vector's first numbers are a vector, too
  std::vector<std::uint32_t> sizes;  // of such; empty: any
  // Of a model that judges pairs of texts: the tokens that say no and yes, and the prompt that asks, with {query} and {document} in it.
  // Empty: it judges none.
  std::string no_token, yes_token, pair_template;
  std::string unsupported;  // why there are no vectors; empty: there are
};

}  // namespace quire
