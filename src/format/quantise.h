#pragma once
// Rows of floats to codes in the layout of the types that dequant.h unpacks: what `--quantize` makes of matrices that a model has as
// floats. Called while weights are loaded, one matrix to a thread.
#include <span>

#include "format/dequant.h"

namespace quire {

// All of them: one that is NaN or infinite has no code.
bool all_finite(std::span<const float> values);

// As Q8_0: a scale per 32 columns, amax / 127 rounded to f16, and codes of the largest one's 127th part. No minimums.
void quantise_q8_row(std::span<const float> values, const Q8Row& out);

// A scale and a minimum per 32 columns, as those of least squares have them. Where columns are a multiple of 256, `units` has columns / 256
// * 2 values and both are whole multiples of a unit (has_units); else it is empty, and they are rounded to f16, as Q4_1's.
void quantise_q4_row(std::span<const float> values, const Q4Row& out, std::span<float> units);

}  // namespace quire
