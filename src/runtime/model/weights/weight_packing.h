#pragma once
// Tensors of a file, packed for the kernels, or read as an earlier start has packed them.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "quire/base/error.h"
#include "quire/base/options.h"
#include "runtime/kernel/pack.h"
#include "runtime/model/kept/packed_file.h"
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
  WeightQuantisation quantise = WeightQuantisation::none;
  bool is_streamed = false;  // a matrix that stays in the file of packed ones: no storage
};

struct PackingOptions {
  const WeightsOptions* kept = nullptr;  // null, or without a folder: nothing is kept
  void (*progress)(double) = nullptr;    // 0 to 1, on the calling thread
};

struct PackedWeights {
  Sha256Digest key{};              // of the file of packed weights
  std::optional<PackedFile> file;  // matrices have the numbers of their tasks, tasks with vectors left out
  std::vector<std::string> notes;  // what went otherwise than asked for
};

// Shared out among the pool's threads; errors where a file changes meanwhile, or where what is to be streamed cannot be kept.
Result<PackedWeights> pack_weights(const ModelFile& file, const std::vector<PackTask>& tasks, ThreadPool& pool,
                                   const PackingOptions& options);
// Once more, the matrix of that number. `io` where the model is no longer the one that `key` was made of.
Result<void> pack_again(const ModelFile& file, const std::vector<PackTask>& tasks, const Sha256Digest& key, std::uint32_t number,
                        PackedMatrix& matrix);

}  // namespace quire
