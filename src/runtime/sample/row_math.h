#pragma once
// Passes over one row of logits. Every sum is taken in a fixed order, so a row's result depends on the row alone.
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "quire/base/ids.h"

namespace quire {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// e^x for x <= 0 within 3e-7 relative; 0 below -87 and for -infinity. Written so that loops over it vectorize.
float exp_nonpositive(float x);

// The largest logit, or NaN if the row holds a NaN, a +infinity, or nothing above -infinity: such a row has no distribution.
float row_max(std::span<const float> row);
// The same of a row as the model gave it, before anything is masked: there a -infinity is no number either.
float finite_row_max(std::span<const float> row);

// The lowest index among the largest entries; `max` is row_max(row).
TokenId first_index_of(std::span<const float> row, float max);

// Sum of exp((row[i] - max) * inverse_temperature), taken over consecutive blocks of kSumBlock entries; block_sums, if not empty, takes the
// sum of each block.
inline constexpr std::size_t kSumBlock = 512;
inline std::size_t num_sum_blocks(std::size_t size) {
  return (size + kSumBlock - 1) / kSumBlock;
}
double exp_sum(std::span<const float> row, float max, float inverse_temperature, std::span<double> block_sums = {});

// Number of entries above `value`.
std::uint32_t count_greater(std::span<const float> row, float value);

// A token with a logit, or with a weight relative to the likeliest: what the score is, its user says.
struct Scored {
  float score = 0.0F;
  TokenId token = 0;
  // The order in which tokens are preferred: higher score first, then the lower id.
  friend bool operator<(const Scored& a, const Scored& b) { return a.score != b.score ? a.score > b.score : a.token < b.token; }
};

// The `count` most preferred entries of the row, in order, into `best` (its capacity is reused). -infinity never enters.
void top_entries(std::span<const float> row, std::uint32_t count, std::vector<Scored>& best);

// The count-th largest value of the row (1 <= count <= size): by heap for few, by selection in `scratch` for many.
float kth_largest(std::span<const float> row, std::uint32_t count, std::vector<Scored>& scratch);

}  // namespace quire
