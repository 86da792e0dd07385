#pragma once
// Draws a token from a row of logits, with temperature, min_p, top_k and top_p.
#include <cstdint>
#include <span>
#include <vector>

#include "quire/base/ids.h"
#include "runtime/sample/row_math.h"

namespace quire {

// Fields of SamplingParams as float. They were validated when the request was submitted.
struct DrawParams {
  float temperature = 1.0F;  // > 0
  float min_p = 0.0F;        // [0, 1]
  std::int32_t top_k = 0;    // <= 0: off
  float top_p = 1.0F;        // (0, 1]
};

// Scratch memory of one thread, reused from row to row.
struct DrawScratch {
  std::vector<Scored> candidates;
  std::vector<double> block_sums;
  void reserve(std::uint32_t vocab_size);
};

// Returns the token at point `uniform` in [0, 1) of the filtered distribution. The filters apply in vLLM's order: min_p; top_k, which keeps
// ties with the k-th token; top_p, which keeps the shortest prefix of the order of preference with at least this mass. `max` is
// row_max(row) and not NaN.
TokenId draw_token(std::span<const float> row, float max, const DrawParams& params, double uniform, DrawScratch& scratch);

// Partitions weighted entries so that they begin with the shortest prefix, in order of preference, whose mass reaches `target`. Returns the
// length of this prefix. Takes linear time on average. Public for its test.
std::size_t select_mass(std::span<Scored> entries, double target);

}  // namespace quire
