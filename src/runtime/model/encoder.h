#pragma once
// The encoder of an encoder-decoder model. Its output is written only to the KV cache, as keys and values of every decoder layer.
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "runtime/kernel/kernel.h"
#include "runtime/memory/block_tables.h"
#include "runtime/memory/kv_cache.h"
#include "runtime/model/layers/layer.h"
#include "runtime/model/layers/pass.h"
#include "runtime/model/weights/weights.h"

namespace quire {

// Owned by Model; encodes one input at a time. The output depends only on the input.
class Encoder {
 public:
  // `weights` must outlive the encoder.
  Encoder(const ModelConfig& config, const DecoderWeights& weights, const Kernels& kernels, ActivationMode mode, ThreadPool& pool);

  // Encodes `features`, [2 * num_positions][num_features]. Writes keys and values to the blocks of `slot` in the group of cross attention.
  // Features of another size, or a slot without blocks for all positions, end the program. Allocates no memory.
  void encode(std::span<const float> features, Slot slot, KvCache& cache, const BlockTables& tables);

  [[nodiscard]] std::uint64_t workspace_bytes() const;

 private:
  void convolve(std::span<const float> features);
  void write_cross_kv(std::uint32_t layer, const PagedKvLayer& kv);

  EncoderShape shape_;
  std::uint32_t num_layers_;  // layers of the decoder
  const DecoderWeights& weights_;
  std::vector<Layer> layers_;
  Pass pass_;
  // Rows in temporal order, with a row of zeros before the first and after the last.
  std::vector<float> features_;     // [2 * num_positions + 2][num_features]
  std::vector<float> conv_output_;  // [2 * num_positions + 2][hidden_size]
  std::vector<std::int64_t> kv_slots_;
};

}  // namespace quire
