#pragma once
// Quantizes rows of floats to codes in the layouts of dequant.h. `--quantize` uses it for matrices that a model stores as floats. Called
// while weights are loaded, one matrix per thread.
#include <span>

#include "format/dequant.h"

namespace quire {

// Returns whether no value is NaN or infinite; such a value has no code.
bool all_finite(std::span<const float> values);

// Quantizes as Q8_0: one scale per 32 columns, amax / 127 rounded to f16. There are no minimums.
void quantise_q8_row(std::span<const float> values, const Q8Row& out);

// Quantizes with one scale and one minimum per 32 columns, fitted by least squares. If `units` is not empty, it has columns / 256 * 2
// values and the scales and minimums are whole multiples of the units (`has_units`); columns must then be a multiple of 256. If `units` is
// empty, scales and minimums are rounded to f16, as in Q4_1.
void quantise_q4_row(std::span<const float> values, const Q4Row& out, std::span<float> units);

}  // namespace quire
