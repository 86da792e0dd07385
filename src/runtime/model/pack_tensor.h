#pragma once
// One tensor of a file, packed for the kernels.
#include <vector>

#include "quire/error.h"
#include "runtime/kernel/pack.h"
#include "runtime/model/model_file.h"

namespace quire {

// Errors: `io` where the file has changed; `corrupt` where what is quantised holds scales or columns that are none.
Result<void> pack_vector(const ModelFile& file, const TensorView& source, std::vector<float>& vector);
// Columns that are ordered by their groups keep that order (PackedMatrix::input_order) if `may_reorder`; else the matrix becomes f32.
Result<void> pack_matrix(const ModelFile& file, const TensorView& source, bool may_reorder, PackedMatrix& matrix);

}  // namespace quire
