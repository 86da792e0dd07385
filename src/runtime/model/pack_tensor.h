#pragma once
// One tensor of a file, packed for the kernels.
#include <vector>

#include "quire/error.h"
#include "runtime/kernel/pack.h"
#include "runtime/model/model_file.h"

namespace quire {

// Errors: `io` where the file has changed; `corrupt` where what is quantised holds scales or columns that are none.
Result<void> pack_vector(const ModelFile& file, const TensorView& source, std::vector<float>& vector);
Result<void> pack_matrix(const ModelFile& file, const TensorView& source, PackedMatrix& matrix);

}  // namespace quire
