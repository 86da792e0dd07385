#pragma once
// Quantizes rows of floats to the layouts of dequant.h. Used by `--quantize` for matrices that a model stores as floats. Called while
// weights are loaded, with one thread per matrix.
#include <span>

#include "format/dequant.h"

namespace quire {

// Returns whether no value is NaN or infinite. NaN and infinite values cannot be quantized.
bool all_finite(std::span<const float> values);

// Quantizes as Q8_0: one scale per 32 columns, the largest absolute value / 127, rounded to f16. All minimums are 0.
void quantise_q8_row(std::span<const float> values, const Q8Row& out);

// Quantizes with one scale and one minimum per 32 columns, fitted by least squares. If `units` is empty, scales and minimums are rounded to
// f16, as in Q4_1. Otherwise `units` has columns / 256 * 2 values, columns must be a multiple of 256, and the scales and minimums are
// integer multiples of the units (has_units()).
void quantise_q4_row(std::span<const float> values, const Q4Row& out, std::span<float> units);

}  // namespace quire
