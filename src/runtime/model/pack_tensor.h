#pragma once
// One tensor of a file, packed for the kernels.
#include <vector>

#include "quire/error.h"
#include "runtime/kernel/pack.h"
#include "runtime/model/model_file.h"

namespace quire {

// Which elements of a source are wanted: every step-th from `first` on; of a matrix whole columns, which become its rows.
struct Turned {
  std::uint32_t first = 0, step = 1;
};

// Errors: `io` where the file has changed; `corrupt` where what is quantised holds scales or columns that are none.
Result<void> pack_vector(const ModelFile& file, const TensorView& source, Turned wanted, std::vector<float>& vector);
// Columns that are ordered by their groups keep that order (PackedMatrix::input_order) if `may_reorder`; else the matrix becomes f32.
Result<void> pack_matrix(const ModelFile& file, const TensorView& source, bool may_reorder, PackedMatrix& matrix);

// The file's rows are the inputs. What is quantised along them becomes f32.
Result<void> pack_turned(const ModelFile& file, const TensorView& source, Turned wanted, PackedMatrix& matrix);

}  // namespace quire
