#pragma once
// Tensors of a file, packed for the kernels.
#include <vector>

#include "base/thread_pool.h"
#include "quire/error.h"
#include "runtime/kernel/pack.h"
#include "runtime/model/weights/model_file.h"
#include "runtime/model/weights/pack_tensor.h"

namespace quire {

// One tensor or a part of one; run by one thread.
struct PackTask {
  TensorView source;
  PackedMatrix* matrix = nullptr;  // one of the two
  std::vector<float>* vector = nullptr;
  bool may_reorder = false;  // its product brings inputs in the order of its columns
  Picked picked = {};
};

// Shared out among the pool's threads; errors where a file changes meanwhile. `progress` may be null.
Result<void> pack_weights(const ModelFile& file, std::vector<PackTask>& tasks, ThreadPool& pool, void (*progress)(double));

}  // namespace quire
