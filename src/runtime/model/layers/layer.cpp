#include "runtime/model/layers/layer.h"

#include <utility>

#include "runtime/model/layers/lora_products.h"

namespace quire {
namespace {

std::unique_ptr<const AttentionSublayer> make_mixer(const LayerConfig& layer, const LayerWeights& weights) {
  if (layer.latent.kv_rank > 0) return make_latent_attention(layer, weights);
  if (layer.memory == LayerMemory::attention) return make_attention(layer, weights);
  const auto make = layer.state.kind == StateKind::short_conv ? make_short_conv
                    : layer.state.kind == StateKind::mamba2   ? make_mamba2
                                                              : make_gated_delta;
  auto recurrence = make(layer, weights);
  if (layer.memory == LayerMemory::state) return recurrence;
  return make_parallel(layer, weights, make_attention(layer, weights), std::move(recurrence));
}

class NoFeedForward final : public FeedForwardSublayer {
 public:
  void run(Pass& /*pass*/) const override {}
};

std::unique_ptr<const FeedForwardSublayer> make_feed_forward_sublayer(const LayerConfig& layer, const LayerWeights& weights,
                                                                      const std::vector<float>* next_norm) {
  // The attention sublayer has already prepared the input of the next layer (share_norms in weights.cpp).
  if (!layer.has_feed_forward) return std::make_unique<NoFeedForward>();
  return layer.num_experts > 0 ? make_experts(layer, weights, next_norm) : make_feed_forward(layer, weights, next_norm);
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

void AttentionSublayer::mix_into_stream(Pass& pass, const LayerCache& cache, const LayerWeights& weights,
                                        const std::vector<float>& bias) const {
  const Product made = mix(pass, cache, pass.workspace.input);
  const LoraProducts adapted(pass, {&made, 1}, 0, pass.rows);
  pass.for_rows(pass.rows, [&](std::uint32_t begin, std::uint32_t end) {
    adapted.add(begin, end);
    pass.add_to_stream(bias, weights.attn_post_norm, &weights.norm_after_attention(), begin, end);
  });
}

std::vector<Layer> make_layers(const ModelConfig& config, const DecoderWeights& weights) {
  std::vector<Layer> layers;
  for (std::uint32_t i = 0; i < config.num_layers; ++i) {
    const std::vector<float>* next_norm = i + 1 == config.num_layers ? nullptr : &weights.layers[i + 1].attn_norm;
    const LayerConfig layer = config.layer(i);
    layers.push_back({make_mixer(layer, weights.layers[i]),
                      layer.cross_positions > 0 ? make_cross_attention(layer, weights.layers[i]) : nullptr,
                      make_feed_forward_sublayer(layer, weights.layers[i], next_norm)});
  }
  return layers;
}

}  // namespace quire
