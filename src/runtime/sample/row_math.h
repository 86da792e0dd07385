#pragma once
// Passes over one row of logits. Every sum is taken in a fixed order, so a row's result depends on the row alone.
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "quire/base/ids.h"

namespace quire {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Returns e^x for x <= 0 with a relative error within 3e-7, and 0 below -87 and for -infinity. Loops over it vectorize.
float exp_nonpositive(float x);

// Returns the largest logit, or NaN if the row holds a NaN, a +infinity, or nothing above -infinity: such a row has no distribution.
float row_max(std::span<const float> row);
// Like row_max(), for a row as the model computed it, before masking: a -infinity makes the result NaN, too.
float finite_row_max(std::span<const float> row);

// Returns the lowest index among the largest entries; `max` is row_max(row).
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

// A token with a score, which is a logit or a weight relative to the likeliest token, depending on the caller.
struct Scored {
  float score = 0.0F;
  TokenId token = 0;
  // The order in which tokens are preferred: higher score first, then the lower id.
  friend bool operator<(const Scored& a, const Scored& b) { return a.score != b.score ? a.score > b.score : a.token < b.token; }
};

// Writes the `count` most preferred entries of the row, in order, to `best`, and reuses its capacity. Entries of -infinity are left out.
void top_entries(std::span<const float> row, std::uint32_t count, std::vector<Scored>& best);

// Returns the count-th largest value of the row (1 <= count <= size). Uses a heap for few entries, and a selection in `scratch` for many.
float kth_largest(std::span<const float> row, std::uint32_t count, std::vector<Scored>& scratch);

}  // namespace quire
