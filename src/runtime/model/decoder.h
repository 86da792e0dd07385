#pragma once
// The forward pass of a decoder over its layers, which are objects: any architecture that ModelConfig can describe.
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "runtime/kernel/kernel.h"
#include "runtime/memory/block_tables.h"
#include "runtime/memory/kv_cache.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/layers/layer.h"
#include "runtime/model/layers/pass.h"
#include "runtime/model/model.h"
#include "runtime/model/weights/weights.h"

namespace quire {

// Owned by Model; one pass at a time. It holds weights and workspaces, and no request: what it reads of the past is in the KV cache.
class Decoder {
 public:
  Decoder(const ModelConfig& config, DecoderWeights weights, const Kernels& kernels, ActivationMode mode, const WorkspaceLimits& limits,
          ThreadPool& pool);

  // As Model::forward.
  void forward(const BatchInput& input, KvCache& cache, const BlockTables& tables, const PassOutput& output, PassHooks* hooks);
  // As those of Model.
  void read_logits(std::span<const std::uint32_t> rows, std::span<float> logits);
  void read_hidden(std::span<const std::uint32_t> rows, std::span<float> hidden);

  [[nodiscard]] const Workspace& workspace() const { return pass_.workspace; }
  [[nodiscard]] const DecoderWeights& weights() const { return weights_; }
  [[nodiscard]] const Kernels& kernels() const { return pass_.kernels; }

 private:
  void check(const BatchInput& input, const KvCache& cache, const PassOutput& output) const;
  void embed(const BatchInput& input);
  void embed_row(const BatchInput& input, std::uint32_t row, float* hidden);
  void adapt_embedding(std::uint32_t row, TokenId token);
  void adapt_logits(std::uint32_t count, const std::uint32_t* rows, std::span<float> logits);
  void take_angles(const BatchInput& input, std::uint32_t row);
  void check_rows(std::span<const std::uint32_t> rows, std::size_t num_values, std::uint32_t width) const;
  void give_hidden(std::uint32_t count, const std::uint32_t* rows, std::span<float> hidden);
  void give_logits(std::uint32_t count, const std::uint32_t* rows, std::span<float> logits);

  ModelConfig config_;
  DecoderWeights weights_;
  Pass pass_;
  std::vector<Layer> layers_;
  std::vector<LayerMemory> memories_;  // [layer]
  std::vector<std::uint32_t> beside_;  // [layer]: which of the KV layout's layers its state is, or what an encoder has made for it
  std::uint32_t num_kept_ = 0;         // layers of that layout
  std::uint64_t state_bytes_ = 0;      // of one layer
  std::vector<float> logit_norm_;      // the output norm with the logits' divisor in it
  std::vector<float> frequencies_;
  std::vector<float> window_frequencies_;  // empty: no layer has its own
};

}  // namespace quire
