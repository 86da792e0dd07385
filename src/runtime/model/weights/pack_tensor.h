#pragma once
// Packs one tensor of a file for the kernels.
#include <vector>

#include "quire/base/error.h"
#include "quire/base/options.h"
#include "runtime/kernel/pack.h"
#include "runtime/model/weights/model_file.h"

namespace quire {

// The part of a source that is packed. Of a vector: every step-th element from `first` on, counted row by row or, if transposed, column by
// column. Of a matrix: every step-th row or, if transposed, every step-th column, which becomes a row.
struct RowSelection {
  std::uint32_t first = 0, step = 1;
  bool transposed = false;
  // If more than one, columns are the inputs of a convolution, [inputs][taps] in the file. They become [taps][inputs], as floats. All
  // columns are packed, not transposed.
  std::uint32_t taps = 1;
};

// Returns whether the source has floats, in whole groups of 32 columns.
bool can_be_quantised(const TensorView& source);

// Errors: `io` if the file has changed; `corrupt` if a quantised source has invalid scales or column groups.
Result<void> pack_vector(const ModelFile& file, const TensorView& source, RowSelection selection, std::vector<float>& vector);
// `quantise` applies to sources of floats with whole groups of 32 columns, neither transposed nor of a convolution. NaN or Inf in such a
// source is `corrupt`. Columns that are ordered by their groups keep that order (PackedMatrix::input_order) if `may_reorder`. Otherwise the
// matrix becomes f32. A matrix that is transposed and quantised along its rows becomes f32, too.
Result<void> pack_matrix(const ModelFile& file, const TensorView& source, RowSelection selection, bool may_reorder, PackedMatrix& matrix,
                         WeightQuantisation quantise = WeightQuantisation::none);

}  // namespace quire
