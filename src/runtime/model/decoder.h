#pragma once
// Runs the forward pass of a decoder over its layers, which are objects. Supports any architecture that ModelConfig can describe.
#include <memory>
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
#include "runtime/model/packed/expert_store.h"
#include "runtime/model/weights/weights.h"

namespace quire {

// Owned by Model; runs one pass at a time. Has weights and workspaces but no state of requests: keys, values and states of earlier tokens
// are in the KV cache.
class Decoder {
 public:
  Decoder(const ModelConfig& config, DecoderWeights weights, const Kernels& kernels, ActivationMode mode, const WorkspaceLimits& limits,
          ThreadPool& pool);

  // Same contract as Model::forward().
  void forward(const BatchInput& input, KvCache& cache, const BlockTables& tables, const PassOutput& output, PassHooks* hooks);
  // Same contract as the functions of these names in Model.
  void read_logits(std::span<const std::uint32_t> rows, std::span<float> logits);
  void read_hidden(std::span<const std::uint32_t> rows, std::span<float> hidden);

  [[nodiscard]] const Workspace& workspace() const { return pass_.workspace; }
  [[nodiscard]] const DecoderWeights& weights() const { return weights_; }
  [[nodiscard]] const Kernels& kernels() const { return pass_.kernels; }
  [[nodiscard]] ExpertReads expert_reads() const { return experts_ == nullptr ? ExpertReads{} : experts_->counts(); }

 private:
  void check(const BatchInput& input, const KvCache& cache, const PassOutput& output) const;
  void embed(const BatchInput& input);
  void embed_row(const BatchInput& input, std::uint32_t row, float* hidden);
  void adapt_embedding(std::uint32_t row, TokenId token);
  void adapt_logits(std::uint32_t count, const std::uint32_t* rows, std::span<float> logits);
  void compute_angles(const BatchInput& input, std::uint32_t row);
  void check_rows(std::span<const std::uint32_t> rows, std::size_t num_values, std::uint32_t width) const;
  void write_hidden(std::uint32_t count, const std::uint32_t* rows, std::span<float> hidden);
  void write_logits(std::uint32_t count, const std::uint32_t* rows, std::span<float> logits);

  ModelConfig config_;
  DecoderWeights weights_;
  std::unique_ptr<ExpertStore> experts_;  // null: all experts are in memory
  Pass pass_;
  std::vector<Layer> layers_;
  std::vector<LayerMemory> memories_;       // [layer]
  std::vector<std::uint32_t> side_layers_;  // [layer]: layer of the KV layout with the layer's state or encoder output
  std::uint32_t num_kv_layers_ = 0;         // layers of the KV layout
  std::uint64_t state_bytes_ = 0;           // bytes of one layer's state
  std::vector<float> logit_norm_;           // the output norm, divided by the logits' divisor
  std::vector<float> frequencies_;
  std::vector<float> window_frequencies_;  // empty: layers with a sliding window use frequencies_
};

}  // namespace quire
