#pragma once
// One tensor of a file, packed for the kernels.
#include <vector>

#include "quire/base/error.h"
#include "quire/base/options.h"
#include "runtime/kernel/pack.h"
#include "runtime/model/weights/model_file.h"

namespace quire {

// Which of a source is wanted: every step-th from `first` on of a vector's elements (row by row, or, turned, column by column), of a
// matrix's rows, or, turned, of its columns, which become its rows.
struct Picked {
  std::uint32_t first = 0, step = 1;
  bool turned = false;
  // More than one: columns are a convolution's, [inputs][taps] in the file, and become [taps][inputs], as floats. All of them, not turned.
  std::uint32_t taps = 1;
};

// Floats, in whole groups of 32 columns.
bool can_be_quantised(const TensorView& source);

// Errors: `io` where the file has changed; `corrupt` where what is quantised holds scales or columns that are none.
Result<void> pack_vector(const ModelFile& file, const TensorView& source, Picked picked, std::vector<float>& vector);
// `quantise`: of a source that has floats, neither turned nor a convolution's, with columns that groups of 32 fill; `corrupt` where one is
// NaN or infinite. Columns that are ordered by their groups keep that order (PackedMatrix::input_order) if `may_reorder`; else the matrix
// becomes f32, as does one that is turned and quantised along its rows.
Result<void> pack_matrix(const ModelFile& file, const TensorView& source, Picked picked, bool may_reorder, PackedMatrix& matrix,
                         WeightQuantisation quantise = WeightQuantisation::none);

}  // namespace quire
