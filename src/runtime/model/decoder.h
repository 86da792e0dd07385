#pragma once
// The forward pass of a dense decoder, any architecture that ModelConfig can describe.
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "runtime/kernel/kernel.h"
#include "runtime/memory/block_tables.h"
#include "runtime/memory/kv_cache.h"
#include "runtime/model/model.h"
#include "runtime/model/model_config.h"
#include "runtime/model/weights.h"
#include "runtime/model/workspace.h"

namespace quire {

class Decoder {
 public:
  Decoder(const ModelConfig& config, DecoderWeights weights, const Kernels& kernels, ActivationMode mode, const WorkspaceLimits& limits,
          ThreadPool& pool);

  // As Model::forward.
  void forward(const BatchInput& input, KvCache& cache, const BlockTables& tables, std::span<float> logits, PassHooks* hooks);

  [[nodiscard]] const DecoderWeights& weights() const { return weights_; }
  [[nodiscard]] const Workspace& workspace() const { return workspace_; }
  [[nodiscard]] const Kernels& kernels() const { return kernels_; }

 private:
  // One of the products that share an input: row r goes to y + r * y_stride.
  struct Product {
    const PackedMatrix* matrix;
    float* y;
    std::size_t y_stride;
  };

  void check(const BatchInput& input, const KvCache& cache, std::span<const float> logits) const;
  void lay_out(const BatchInput& input, const KvLayout& layout, const BlockTables& tables);
  void lay_out_group(const BatchInput& input, const BlockTables& tables, std::uint32_t group);
  void embed(const BatchInput& input);
  void take_angles(std::uint32_t row);
  void add_items(GroupPass& pass, const BlockId* blocks, std::uint32_t row, std::uint32_t count, std::uint32_t out_row);
  void cut_long_rows(GroupPass& pass);
  void keep_logit_rows(const BatchInput& input, const BlockTables& tables, std::uint32_t group);
  void write_kv(std::uint32_t layer, const PagedKvLayer& kv, const GroupPass& pass);
  void attend(const LayerWeights& layer, const PagedKvLayer& kv, const GroupPass& pass);
  void rotate_and_write(std::uint32_t layer, const PagedKvLayer& kv, const std::int64_t* kv_slots, std::uint32_t row_begin,
                        std::uint32_t row_end);
  void rotate(std::uint32_t layer, std::uint32_t row, float* qk) const;
  void finish_heads(float* x, std::uint32_t num_heads, const std::vector<float>& bias, const std::vector<float>& norm) const;
  void run_attention(const PagedKvLayer& kv, const GroupPass& pass);
  void feed_forward(const LayerWeights& layer, const std::vector<float>* next_norm);
  void gate_and_up(const LayerWeights& layer, const Activations& x);
  void output(std::span<float> logits);

  // hidden += scale * post_norm(input + bias); then, given `norm`, input = norm(hidden), ready for a product.
  void add_and_norm(const std::vector<float>& bias, const std::vector<float>& post_norm, const std::vector<float>* norm,
                    std::uint32_t row_begin, std::uint32_t row_end);
  // An empty norm leaves the values as they are.
  void norm_row(const float* values, const std::vector<float>& norm, float* out) const;
  void multiply(std::span<const Product> products, const Activations& x);
  void multiply_panels(std::span<const Product> products, const Activations& x, std::uint32_t begin, std::uint32_t end) const;
  void prepare(const Activations& x);
  [[nodiscard]] Activations activations(const float* x, std::uint32_t rows, std::uint32_t columns, std::span<std::byte> codes) const;
  [[nodiscard]] Activations hidden_activations() const;
  [[nodiscard]] static PagedKvLayer kv_layer(const KvCache& cache, std::uint32_t layer);
  [[nodiscard]] std::uint32_t row_grain(std::uint32_t rows) const;
  [[nodiscard]] std::uint32_t panel_grain(std::uint32_t panels, std::size_t panel_bytes, std::uint32_t rows) const;
  [[nodiscard]] std::size_t qkv_size() const { return std::size_t{config_.q_size()} + 2 * config_.kv_size(); }

  ModelConfig config_;
  DecoderWeights weights_;
  const Kernels& kernels_;
  ActivationMode mode_;
  ThreadPool& pool_;
  Workspace workspace_;
  std::vector<float> frequencies_;
  std::vector<float> window_frequencies_;  // empty: as frequencies_
  std::uint32_t rows_ = 0;                 // of the pass under way; after the last keys and values, those whose logits are wanted
};

}  // namespace quire
