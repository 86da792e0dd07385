// The attention of one layer: computes q, k and v of all rows, writes k and v to the cache, then computes attention for each row. Called by
// the decoder within a pass, on the thread that leads the pass; the pool's threads share every phase. Keys and values of all rows are
// written before any row attends, because rows of one request read keys and values of other rows in the pass. Therefore there are two
// calls, with the pass's hook between them.
#include <algorithm>
#include <array>
#include <tuple>

#include "runtime/model/layers/attention_items.h"
#include "runtime/model/layers/layer.h"
#include "runtime/model/layers/lora_products.h"

namespace quire {
namespace {

// Causal, grouped-query, paged attention.
class PagedAttention final : public AttentionSublayer {
 public:
  PagedAttention(const LayerConfig& config, const LayerWeights& weights) : config_(config), weights_(weights) {}

  void write_kv(Pass& pass, const LayerCache& cache) const override {
    float* q = pass.workspace.qkv;
    float* k = q + config_.q_size();
    float* v = k + config_.kv_size();
    const std::size_t stride = config_.qkv_size();
    const bool is_gated = config_.gated_attention;
    float* queries = is_gated ? pass.workspace.gates : q;
    const std::array products{Product{&weights_.q.matrix, queries, is_gated ? 2 * std::size_t{config_.q_size()} : stride, &LayerAdapter::q},
                              Product{&weights_.k.matrix, k, stride, &LayerAdapter::k},
                              Product{&weights_.v.matrix, v, stride, &LayerAdapter::v}};
    pass.multiply(products, pass.stream_input());
    const LoraProducts adapted(pass, products, 0, pass.rows);
    pass.for_rows(pass.rows, [&](std::uint32_t begin, std::uint32_t end) {
      adapted.add(begin, end);
      for (std::uint32_t row = begin; row < end; ++row) finish_row(pass, row);
      const std::size_t at = begin * stride;
      pass.kernels.write_kv(cache.kv, k + at, v + at, stride, {cache.attention->kv_slots + begin, end - begin});
    });
  }

  Product mix(Pass& pass, const LayerCache& cache, float* out) const override {
    const Activations x = pass.activations(pass.workspace.mixed, pass.rows, config_.q_size(), pass.workspace.inner_codes);
    run_items(pass, cache.kv, *cache.attention, x);
    const Product product{&weights_.attn_output.matrix, out, config_.hidden_size, &LayerAdapter::attn_output};
    pass.multiply({&product, 1}, x);
    return product;
  }

  void attend(Pass& pass, const LayerCache& cache) const override { mix_into_stream(pass, cache, weights_, weights_.attn_output.bias); }

 private:
  // Copies the queries of a row. In `gates`, each head's query is followed by its gate; the gates are not moved.
  void take_queries(const Pass& pass, std::uint32_t row, float* q) const {
    const float* from = pass.workspace.gates + std::size_t{row} * 2 * config_.q_size();
    for (std::uint32_t head = 0; head < config_.num_heads; ++head)
      std::copy_n(from + std::size_t{head} * 2 * config_.head_dim, config_.head_dim, q + std::size_t{head} * config_.head_dim);
  }

  // Multiplies the output of each head by its gate.
  void gate_row(const Pass& pass, std::uint32_t row) const {
    float* given = pass.workspace.mixed + std::size_t{row} * config_.q_size();
    const float* gates = pass.workspace.gates + std::size_t{pass.workspace.sources[row]} * 2 * config_.q_size() + config_.head_dim;
    for (std::uint32_t head = 0; head < config_.num_heads; ++head, given += config_.head_dim, gates += 2 * std::size_t{config_.head_dim})
      pass.kernels.sigmoid_mul(gates, given, given, config_.head_dim);
  }

  // Applies biases, norms and rotation to a row. The heads of k follow the heads of q.
  void finish_row(const Pass& pass, std::uint32_t row) const {
    float* q = pass.workspace.qkv + row * config_.qkv_size();
    if (config_.gated_attention) take_queries(pass, row, q);
    float* k = q + config_.q_size();
    add_bias(pass.kernels, q, weights_.q.bias);
    add_bias(pass.kernels, k, weights_.k.bias);
    add_bias(pass.kernels, k + config_.kv_size(), weights_.v.bias);
    if (!config_.late_qk_norm) norm_heads(pass.kernels, q, k);
    if (config_.rotation != Rotation::none) rotate_heads(pass, row, q);
    if (config_.late_qk_norm) norm_heads(pass.kernels, q, k);
  }

  static void add_bias(const Kernels& kernels, float* x, const std::vector<float>& bias) {
    if (!bias.empty()) kernels.add(x, bias.data(), static_cast<std::uint32_t>(bias.size()));
  }

  void rotate_heads(const Pass& pass, std::uint32_t row, float* q) const {
    const RowAngles& angles = config_.rotation == Rotation::window ? pass.workspace.window_angles : pass.workspace.angles;
    const std::size_t at = std::size_t{row} * (config_.rotary_dim / 2);
    pass.kernels.rope(config_.rope_style, q, config_.num_heads + config_.num_kv_heads, config_.head_dim, config_.rotary_dim,
                      angles.cosines + at, angles.sines + at);
  }

  // Norms q and k. A norm covers one head or all heads.
  void norm_heads(const Kernels& kernels, float* q, float* k) const {
    for (const auto& [x, width, norm] :
         {std::tuple(q, config_.q_size(), &weights_.q_norm), std::tuple(k, config_.kv_size(), &weights_.k_norm)}) {
      const auto norm_width = static_cast<std::uint32_t>(norm->size());
      for (std::uint32_t at = 0; at < width && norm_width > 0; at += norm_width)
        kernels.rms_norm(x + at, norm->data(), config_.norm_epsilon, x + at, norm_width);
    }
  }

  // Computes the attention items. If the heads of an item are whole groups of the next product's input `x`, the same thread also prepares
  // them for that product.
  void run_items(Pass& pass, const PagedKvLayer& kv, const GroupPass& group, const Activations& x) const {
    const std::uint32_t width = config_.head_dim * config_.group();
    const bool by_item = width % kGroupColumns == 0 && !config_.gated_attention;
    const std::uint32_t groups = width / kGroupColumns;
    attend_items(pass, kv, group, sinks(), [&](const AttentionItem& item) {
      if (!by_item) return;
      const auto row = static_cast<std::uint32_t>(static_cast<std::size_t>(item.out - x.x) / x.stride);
      pass.kernels.prepare_groups(x, row, row + item.rows, item.kv_head * groups, (item.kv_head + 1) * groups);
    });
    if (by_item) return;
    pass.for_rows(x.rows, [&](std::uint32_t begin, std::uint32_t end) {
      for (std::uint32_t row = begin; row < end && config_.gated_attention; ++row) gate_row(pass, row);
      pass.kernels.prepare(x, begin, end);
    });
  }

  [[nodiscard]] const float* sinks() const { return weights_.sinks.empty() ? nullptr : weights_.sinks.data(); }

  // The layer owns a copy of the config. The weights must outlive the layer.
  LayerConfig config_;
  const LayerWeights& weights_;
};

}  // namespace

std::unique_ptr<const AttentionSublayer> make_attention(const LayerConfig& config, const LayerWeights& weights) {
  return std::make_unique<PagedAttention>(config, weights);
}

}  // namespace quire
