#pragma once
// Tensors of a file, packed for the kernels.
#include <vector>

#include "base/thread_pool.h"
#include "quire/error.h"
#include "runtime/kernel/pack.h"
#include "runtime/model/model_file.h"

namespace quire {

// One tensor or a part of one; run by one thread.
struct PackTask {
  TensorView source;
  PackedMatrix* matrix = nullptr;  // one of the two
  std::vector<float>* vector = nullptr;
  bool transposes = false;  // the vector becomes [columns][rows]
};

// Shared out among the pool's threads; errors where a file changes meanwhile. `progress` may be null.
Result<void> pack_weights(const ModelFile& file, std::vector<PackTask>& tasks, ThreadPool& pool, void (*progress)(double));

}  // namespace quire
