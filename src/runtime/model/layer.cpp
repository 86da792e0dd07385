#include "runtime/model/layer.h"

namespace quire {

std::vector<Layer> make_layers(const ModelConfig& config, const DecoderWeights& weights) {
  std::vector<Layer> layers;
  for (std::uint32_t i = 0; i < config.num_layers; ++i) {
    const std::vector<float>* next_norm = i + 1 == config.num_layers ? nullptr : &weights.layers[i + 1].attn_norm;
    const LayerConfig layer = config.layer(i);
    const auto make_half = layer.num_experts > 0 ? make_experts : make_feed_forward;
    const auto make_memory = layer.memory == LayerMemory::attention ? make_attention : make_short_conv;
    layers.push_back({make_memory(layer, weights.layers[i]), make_half(layer, weights.layers[i], next_norm)});
  }
  return layers;
}

}  // namespace quire
