#pragma once
// Chooses one token from a row of logits: temperature, min_p, top_k, top_p, and the draw.
#include <cstdint>
#include <span>
#include <vector>

#include "quire/base/ids.h"
#include "runtime/sample/row_math.h"

namespace quire {

// These fields of SamplingParams, in float, were validated when the request was submitted.
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

// Returns the token at point `uniform` in [0, 1) of the filtered distribution. The filters apply in vLLM's order: min_p, top_k (ties with
// the k-th stay), top_p (the shortest prefix of the order of preference with at least that mass). `max` is row_max(row), not NaN.
TokenId draw_token(std::span<const float> row, float max, const DrawParams& params, double uniform, DrawScratch& scratch);

// Partitions weighted entries so that they begin with the shortest prefix, in order of preference, that reaches the mass `target`. Returns
// its length. Takes expected linear time. Public for its test.
std::size_t select_mass(std::span<Scored> entries, double target);

}  // namespace quire
