#include "runtime/model/layer.h"

#include <utility>

namespace quire {
namespace {

std::unique_ptr<const AttentionHalf> make_look_back(const LayerConfig& layer, const LayerWeights& weights) {
  if (layer.latent.kv_rank > 0) return make_latent_attention(layer, weights);
  if (layer.memory == LayerMemory::attention) return make_attention(layer, weights);
  const auto make = layer.state.kind == StateKind::short_conv ? make_short_conv
                    : layer.state.kind == StateKind::mamba2   ? make_mamba2
                                                              : make_gated_delta;
  auto recurrence = make(layer, weights);
  if (layer.memory == LayerMemory::state) return recurrence;
  return make_parallel(layer, weights, make_attention(layer, weights), std::move(recurrence));
}

}  // namespace

PagedKvLayer kv_layer(const KvCache& cache, std::uint32_t layer) {
  const KvLayerLayout& layout = cache.layout().layers[layer];
  return {.keys = cache.keys(layer),
          .values = cache.values(layer),
          .dtype = cache.layout().dtype,
          .block_size = cache.layout().groups[layout.group].kernel_block_size,
          .num_kv_heads = layout.num_kv_heads,
          .head_dim = layout.head_dim,
          .block_stride = layout.block_stride,
          .head_stride = layout.head_stride,
          .token_stride = layout.token_stride};
}

void AttentionHalf::mix_into_stream(Pass& pass, const LayerCache& cache, const LayerWeights& weights,
                                    const std::vector<float>& bias) const {
  mix(pass, cache, pass.workspace.input);
  pass.for_rows(pass.rows, [&](std::uint32_t begin, std::uint32_t end) {
    pass.add_to_stream(bias, weights.attn_post_norm, &weights.ffn_norm, begin, end);
  });
}

std::vector<Layer> make_layers(const ModelConfig& config, const DecoderWeights& weights) {
  std::vector<Layer> layers;
  for (std::uint32_t i = 0; i < config.num_layers; ++i) {
    const std::vector<float>* next_norm = i + 1 == config.num_layers ? nullptr : &weights.layers[i + 1].attn_norm;
    const LayerConfig layer = config.layer(i);
    const auto make_half = layer.num_experts > 0 ? make_experts : layer.gated_feed_forward ? make_feed_forward : make_plain_feed_forward;
    layers.push_back({make_look_back(layer, weights.layers[i]),
                      layer.cross_positions > 0 ? make_cross_attention(layer, weights.layers[i]) : nullptr,
                      make_half(layer, weights.layers[i], next_norm)});
  }
  return layers;
}

}  // namespace quire
