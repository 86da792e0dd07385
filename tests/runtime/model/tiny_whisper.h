#pragma once
// Small Whisper models, written as Hugging Face folders (tools/record/whisper_logits.py makes the same).
#include <string>
#include <string_view>
#include <vector>

#include "runtime/model/rig.h"
#include "runtime/model/tiny_model.h"

namespace quire::tiny {

inline void add_whisper_layer(const std::string& name, std::uint64_t width, std::uint64_t inner, bool looks_across, GgmlType type,
                              std::vector<Tensor>& out) {
  const auto add = [&](const std::string& part, std::vector<std::uint64_t> shape) { out.push_back(make_tensor(name + part, type, shape)); };
  const auto norm = [&](const std::string& part) {
    add(part + ".weight", {width});
    add(part + ".bias", {width});
  };
  const auto attention = [&](const std::string& part) {
    for (const char* product : {".q_proj", ".k_proj", ".v_proj", ".out_proj"}) {
      add(part + product + ".weight", {width, width});
      if (std::string_view(product) != ".k_proj") add(part + product + ".bias", {width});
    }
  };
  norm("self_attn_layer_norm");
  attention("self_attn");
  if (looks_across) {
    norm("encoder_attn_layer_norm");
    attention("encoder_attn");
  }
  norm("final_layer_norm");
  add("fc1.weight", {inner, width});
  add("fc1.bias", {inner});
  add("fc2.weight", {width, inner});
  add("fc2.bias", {width});
}

inline std::vector<Tensor> whisper_tensors(const ModelConfig& c, std::string_view kind) {
  const GgmlType type = type_named(kind);
  const std::uint64_t width = c.hidden_size;
  std::vector<Tensor> tensors;
  const auto add = [&](const std::string& name, std::vector<std::uint64_t> shape) { tensors.push_back(make_tensor(name, type, shape)); };
  add("model.encoder.conv1.weight", {width, c.encoder.num_features, 3});
  add("model.encoder.conv1.bias", {width});
  add("model.encoder.conv2.weight", {width, width, 3});
  add("model.encoder.conv2.bias", {width});
  add("model.encoder.embed_positions.weight", {c.encoder.num_positions, width});
  add("model.decoder.embed_tokens.weight", {c.vocab_size, width});
  add("model.decoder.embed_positions.weight", {c.context_length, width});
  for (std::uint32_t i = 0; i < c.encoder.num_layers; ++i)
    add_whisper_layer("model.encoder.layers." + std::to_string(i) + ".", width, c.encoder.intermediate_size, false, type, tensors);
  for (std::uint32_t i = 0; i < c.num_layers; ++i)
    add_whisper_layer("model.decoder.layers." + std::to_string(i) + ".", width, c.intermediate_size, true, type, tensors);
  for (const char* half : {"model.encoder.layer_norm", "model.decoder.layer_norm"}) {
    add(std::string(half) + ".weight", {width});
    add(std::string(half) + ".bias", {width});
  }
  return tensors;
}

// Shape: [2 * num_positions][num_features].
inline std::vector<float> whisper_features(const EncoderInfo& encoder, const std::string& name = "features") {
  const std::uint64_t count = std::uint64_t{2} * encoder.num_positions * encoder.num_features;
  const std::string bytes = make_tensor(name, GgmlType::f32, {count}).bytes;
  std::vector<float> features(count);
  std::memcpy(features.data(), bytes.data(), bytes.size());
  return features;
}

}  // namespace quire::tiny
