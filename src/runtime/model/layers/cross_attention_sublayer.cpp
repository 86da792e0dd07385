// Cross attention to an encoder's output for the request's input. The encoder (encoder.h) writes its keys and values to blocks of a
// separate group before the first pass over the request. Each row attends to all encoder positions, independent of the row's position.
#include <array>

#include "runtime/model/layers/attention_items.h"
#include "runtime/model/layers/layer.h"

namespace quire {
namespace {

class CrossAttention final : public CrossAttentionSublayer {
 public:
  CrossAttention(const LayerConfig& config, const LayerWeights& weights) : config_(config), weights_(weights) {}

  void attend(Pass& pass, const LayerCache& cache) const override {
    const CrossWeights& cross = weights_.cross;
    pass.multiply(std::array{Product{&cross.q.matrix, pass.workspace.qkv, config_.qkv_size()}}, pass.stream_input());
    pass.for_rows(pass.rows, [&](std::uint32_t begin, std::uint32_t end) {
      for (std::uint32_t row = begin; row < end; ++row)
        pass.kernels.add(pass.workspace.qkv + row * config_.qkv_size(), cross.q.bias.data(), config_.q_size());
    });
    attend_items(pass, cache.cross_kv, *cache.cross, nullptr, [](const AttentionItem& /*item*/) {});
    const Activations mixed = pass.activations(pass.workspace.mixed, pass.rows, config_.q_size(), pass.workspace.inner_codes);
    pass.for_rows(pass.rows, [&](std::uint32_t begin, std::uint32_t end) { pass.kernels.prepare(mixed, begin, end); });
    pass.multiply(std::array{Product{&cross.output.matrix, pass.workspace.input, config_.hidden_size}}, mixed);
    pass.for_rows(pass.rows, [&](std::uint32_t begin, std::uint32_t end) {
      pass.add_to_stream(cross.output.bias, weights_.attn_post_norm, &weights_.ffn_norm, begin, end);
    });
  }

 private:
  LayerConfig config_;
  const LayerWeights& weights_;
};

}  // namespace

std::unique_ptr<const CrossAttentionSublayer> make_cross_attention(const LayerConfig& config, const LayerWeights& weights) {
  return std::make_unique<CrossAttention>(config, weights);
}

}  // namespace quire
