#pragma once
// Packs tensors of a file for the kernels, or reads them from the file that an earlier start has packed.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "quire/base/error.h"
#include "quire/base/options.h"
#include "runtime/kernel/pack.h"
#include "runtime/model/packed/packed_file.h"
#include "runtime/model/weights/model_file.h"
#include "runtime/model/weights/pack_tensor.h"

namespace quire {

// Task of packing a tensor or a part of a tensor; run by one thread.
struct PackTask {
  TensorView source;
  PackedMatrix* matrix = nullptr;  // either this or `vector` is set
  std::vector<float>* vector = nullptr;
  bool may_reorder = false;  // the product can reorder its inputs to the order of the matrix's columns
  RowSelection selection = {};
  WeightQuantisation quantise = WeightQuantisation::none;
  bool is_streamed = false;  // the matrix stays in the file of packed weights, without storage
};

struct PackingOptions {
  const WeightsOptions* kept = nullptr;  // null, or without a folder: packed weights are not cached
  void (*progress)(double) = nullptr;    // 0 to 1, on the calling thread
};

struct PackedWeights {
  Sha256Digest key{};              // key of the file of packed weights
  std::optional<PackedFile> file;  // matrices have the numbers of their tasks, without counting tasks for vectors
  std::vector<std::string> notes;  // reasons why options had no effect
};

// Packs all tasks on the threads of the pool. Errors: a file has changed; weights that must be streamed cannot be cached.
Result<PackedWeights> pack_weights(const ModelFile& file, const std::vector<PackTask>& tasks, ThreadPool& pool,
                                   const PackingOptions& options);
// Packs the matrix with this number again. Returns `io` if the model's files have changed since `key` was computed.
Result<void> repack(const ModelFile& file, const std::vector<PackTask>& tasks, const Sha256Digest& key, std::uint32_t number,
                    PackedMatrix& matrix);

}  // namespace quire
