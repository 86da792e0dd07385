// Collects Whisper's tensors. Called by the loader once, for models with an encoder.
#include "runtime/model/weights/whisper_tensors.h"

#include <fmt/format.h>

namespace quire {

void WhisperTensors::norm(TaskCollector& collector, const std::string& name, std::uint32_t size, std::vector<float>& out) {
  collector.vector(name + ".weight", size, out);
  norms_.push_back({&out, {}});
  collector.vector(name + ".bias", size, norms_.back().biases);
}

void WhisperTensors::layer(TaskCollector& collector, const std::string& name, const LayerConfig& config, LayerWeights& out) {
  const std::uint32_t width = config.hidden_size;
  const auto attention = [&](const std::string& part, Linear& q, Linear& k, Linear& v, Linear& output) {
    collector.linear(part + ".q_proj", config.q_size(), width, q);
    collector.linear(part + ".k_proj", config.kv_size(), width, k, false);
    collector.linear(part + ".v_proj", config.kv_size(), width, v);
    collector.linear(part + ".out_proj", width, config.q_size(), output);
  };
  norm(collector, name + "self_attn_layer_norm", width, out.attn_norm);
  attention(name + "self_attn", out.q, out.k, out.v, out.attn_output);
  if (config.cross_positions > 0) {
    norm(collector, name + "encoder_attn_layer_norm", width, out.cross.norm);
    attention(name + "encoder_attn", out.cross.q, out.cross.k, out.cross.v, out.cross.output);
  }
  norm(collector, name + "final_layer_norm", width, out.ffn_norm);
  collector.linear(name + "fc1", config.intermediate_size, width, out.gate);
  collector.linear(name + "fc2", width, config.intermediate_size, out.down);
}

void WhisperTensors::collect(const ModelConfig& config, TaskCollector& collector, DecoderWeights& out) {
  const std::uint32_t width = config.hidden_size;
  const ModelConfig encoder = config.encoder_config();
  constexpr std::uint32_t kTaps = EncoderShape::kTaps;
  collector.taps("model.encoder.conv1", width, config.encoder.num_features, kTaps, out.encoder.first_conv);
  collector.taps("model.encoder.conv2", width, width, kTaps, out.encoder.second_conv);
  collector.floats("model.encoder.embed_positions.weight", config.encoder.num_positions * width, out.encoder.positions);
  out.encoder.layers.resize(encoder.num_layers);
  for (std::uint32_t i = 0; i < encoder.num_layers; ++i)
    layer(collector, fmt::format("model.encoder.layers.{}.", i), encoder.layer(i), out.encoder.layers[i]);
  norm(collector, "model.encoder.layer_norm", width, out.encoder.output_norm);
  collector.matrix("model.decoder.embed_tokens.weight", config.vocab_size, width, out.embedding);
  collector.floats("model.decoder.embed_positions.weight", config.context_length * width, out.positions);
  out.layers.resize(config.num_layers);
  for (std::uint32_t i = 0; i < config.num_layers; ++i)
    layer(collector, fmt::format("model.decoder.layers.{}.", i), config.layer(i), out.layers[i]);
  norm(collector, "model.decoder.layer_norm", width, out.output_norm);
}

void WhisperTensors::finish() {
  for (Norm& norm : norms_) norm.weights->insert(norm.weights->end(), norm.biases.begin(), norm.biases.end());
}

}  // namespace quire
