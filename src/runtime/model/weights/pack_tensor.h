#pragma once
// Packs one tensor of a file for the kernels.
#include <vector>

#include "quire/base/error.h"
#include "quire/base/options.h"
#include "runtime/kernel/pack.h"
#include "runtime/model/weights/model_file.h"

namespace quire {

// The part of a source tensor that is packed. For a vector: every step-th element from `first` on, counted row by row or, if transposed,
// column by column. For a matrix: every step-th row or, if transposed, every step-th column, which becomes a row.
struct RowSelection {
  std::uint32_t first = 0, step = 1;
  bool transposed = false;
  // If above 1, columns are the inputs of a convolution, [inputs][taps] in the file. They are packed as [taps][inputs], in floats. All
  // columns are packed, not transposed.
  std::uint32_t taps = 1;
};

// Returns whether the source has floats, and its columns are whole groups of 32.
bool can_be_quantised(const TensorView& source);

// Packs a vector. Errors: `io` if the file has changed; `corrupt` if a quantised source has invalid scales or column groups.
Result<void> pack_vector(const ModelFile& file, const TensorView& source, RowSelection selection, std::vector<float>& vector);
// Packs a matrix.
// - `quantise` applies to sources of floats with whole groups of 32 columns, neither transposed nor of a convolution. NaN or Inf in such a
//   source is `corrupt`.
// - If columns are ordered by their groups, the matrix keeps this order (PackedMatrix::input_order) if `may_reorder`, and otherwise becomes
//   f32.
// - A matrix that is transposed and quantised along its rows also becomes f32.
Result<void> pack_matrix(const ModelFile& file, const TensorView& source, RowSelection selection, bool may_reorder, PackedMatrix& matrix,
                         WeightQuantisation quantise = WeightQuantisation::none);

}  // namespace quire
