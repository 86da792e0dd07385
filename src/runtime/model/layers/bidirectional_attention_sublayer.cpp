// Attention of an encoder: every row attends to all rows of the input, including later ones. Keys and values are read from the product's
// output. For the kernels, rows of the input are the query heads of one KV head, so that a tile of rows reads the keys together.
#include <algorithm>
#include <array>

#include "runtime/kernel/attention.h"
#include "runtime/model/layers/layer.h"

namespace quire {
namespace {

constexpr BlockId kOnlyBlock{0};

class BidirectionalAttention final : public AttentionSublayer {
 public:
  BidirectionalAttention(const LayerConfig& config, const LayerWeights& weights) : config_(config), weights_(weights) {}

  // Computes queries, keys and values. Copies queries head by head.
  void write_kv(Pass& pass, const LayerCache& /*cache*/) const override {
    const std::size_t stride = config_.qkv_size();
    float* q = pass.workspace.qkv;
    const std::array products{Product{&weights_.q.matrix, q, stride}, Product{&weights_.k.matrix, q + config_.q_size(), stride},
                              Product{&weights_.v.matrix, q + 2 * std::size_t{config_.q_size()}, stride}};
    pass.multiply(products, pass.stream_input());
    pass.for_rows(pass.rows, [&](std::uint32_t begin, std::uint32_t end) {
      for (std::uint32_t row = begin; row < end; ++row) {
        float* values = q + row * stride;
        pass.kernels.add(values, weights_.q.bias.data(), config_.q_size());
        pass.kernels.add(values + 2 * std::size_t{config_.q_size()}, weights_.v.bias.data(), config_.q_size());
        for (std::uint32_t head = 0; head < config_.num_heads; ++head)
          std::copy_n(values + std::size_t{head} * config_.head_dim, config_.head_dim,
                      row_of(pass, pass.workspace.head_queries, head, row));
      }
    });
  }

  Product mix(Pass& pass, const LayerCache& /*cache*/, float* out) const override {
    const std::uint32_t tiles = (pass.rows + kEncoderItemRows - 1) / kEncoderItemRows;
    pass.pool.parallel_for(config_.num_heads * tiles, 1, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t thread) {
      for (std::uint32_t i = begin; i < end; ++i) attend_tile(pass, i / tiles, i % tiles * kEncoderItemRows, thread);
    });
    const Activations x = pass.activations(pass.workspace.mixed, pass.rows, config_.q_size(), pass.workspace.inner_codes);
    pass.for_rows(pass.rows, [&](std::uint32_t begin, std::uint32_t end) {
      for (std::uint32_t row = begin; row < end; ++row)
        for (std::uint32_t head = 0; head < config_.num_heads; ++head)
          std::copy_n(row_of(pass, pass.workspace.head_outputs, head, row), config_.head_dim,
                      pass.workspace.mixed + std::size_t{row} * config_.q_size() + std::size_t{head} * config_.head_dim);
      pass.kernels.prepare(x, begin, end);
    });
    const Product product{&weights_.attn_output.matrix, out, config_.hidden_size};
    pass.multiply({&product, 1}, x);
    return product;
  }

  void attend(Pass& pass, const LayerCache& cache) const override { mix_into_stream(pass, cache, weights_, weights_.attn_output.bias); }

 private:
  // Returns a row of one head in a buffer of the workspace.
  [[nodiscard]] float* row_of(const Pass& pass, float* heads, std::uint32_t head, std::uint32_t row) const {
    return heads + (std::size_t{head} * pass.rows + row) * config_.head_dim;
  }

  // Computes attention for a tile of rows of one head.
  void attend_tile(const Pass& pass, std::uint32_t head, std::uint32_t row, std::uint32_t thread) const {
    float* k = pass.workspace.qkv + config_.q_size() + std::size_t{head} * config_.head_dim;
    const PagedKvLayer kv{.keys = reinterpret_cast<std::byte*>(k),
                          .values = reinterpret_cast<std::byte*>(k + config_.q_size()),
                          .dtype = KvDtype::f32,
                          .block_size = pass.rows,
                          .num_kv_heads = 1,
                          .head_dim = config_.head_dim,
                          .block_stride = 0,
                          .head_stride = 0,
                          .token_stride = config_.qkv_size()};
    const AttentionItem item{.q = row_of(pass, pass.workspace.head_queries, head, row),
                             .out = row_of(pass, pass.workspace.head_outputs, head, row),
                             .rows = 1,
                             .first_position = pass.rows - 1,
                             .group = std::min(kEncoderItemRows, pass.rows - row),
                             .blocks = &kOnlyBlock,
                             .scale = config_.attention_scale};
    pass.kernels.attend(kv, item, pass.workspace.attention_scratch(thread));
  }

  LayerConfig config_;
  const LayerWeights& weights_;
};

}  // namespace

std::vector<Layer> make_encoder_layers(const ModelConfig& config, const EncoderWeights& weights) {
  std::vector<Layer> layers;
  for (std::uint32_t i = 0; i < config.num_layers; ++i) {
    const LayerConfig layer = config.layer(i);
    const std::vector<float>& next_norm = i + 1 == config.num_layers ? weights.output_norm : weights.layers[i + 1].attn_norm;
    layers.push_back({std::make_unique<BidirectionalAttention>(layer, weights.layers[i]), nullptr,
                      make_feed_forward(layer, weights.layers[i], &next_norm)});
  }
  return layers;
}

}  // namespace quire
