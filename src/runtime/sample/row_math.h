#pragma once
// Loops over one row of logits. Every sum is taken in a fixed order, so a row's result depends only on the row.
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "quire/base/ids.h"

namespace quire {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Returns e^x for x <= 0 with a relative error of at most 3e-7, and 0 below -87 and for -infinity. The compiler can vectorize loops that
// call it.
float exp_nonpositive(float x);

// Returns the largest logit; NaN if the row contains a NaN or +infinity, or only -infinity, because such a row has no distribution.
float row_max(std::span<const float> row);
// Like row_max(), but for a row before masking: also returns NaN if the row contains -infinity.
float finite_row_max(std::span<const float> row);

// Returns the lowest index of the largest logit; `max` is row_max(row).
TokenId first_index_of(std::span<const float> row, float max);

// Returns the sum of exp((row[i] - max) * inverse_temperature), taken over consecutive blocks of kSumBlock entries. If `block_sums` is not
// empty, it receives the sum of each block.
inline constexpr std::size_t kSumBlock = 512;
inline std::size_t num_sum_blocks(std::size_t size) {
  return (size + kSumBlock - 1) / kSumBlock;
}
double exp_sum(std::span<const float> row, float max, float inverse_temperature, std::span<double> block_sums = {});

// Returns the number of entries above `value`.
std::uint32_t count_greater(std::span<const float> row, float value);

// A token with a score: a logit, or a weight relative to the likeliest token.
struct Scored {
  float score = 0.0F;
  TokenId token = 0;
  // Order of preference: higher score first, then lower token id.
  friend bool operator<(const Scored& a, const Scored& b) { return a.score != b.score ? a.score > b.score : a.token < b.token; }
};

// Writes the `count` most preferred entries of the row, in order, to `best`, and reuses its capacity. Entries of -infinity are left out.
void top_entries(std::span<const float> row, std::uint32_t count, std::vector<Scored>& best);

// Returns the count-th largest value of the row (1 <= count <= size). Uses a heap for few entries, and a selection in `scratch` for many.
float kth_largest(std::span<const float> row, std::uint32_t count, std::vector<Scored>& scratch);

}  // namespace quire
