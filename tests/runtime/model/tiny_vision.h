#pragma once
// Small models that see: a folder of Idefics3 or SmolVLM.
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/random.h"
#include "format/json.h"
#include "runtime/model/config/vision_config.h"
#include "runtime/model/tiny_model.h"

namespace quire::tiny {

inline void add_vision_tensors(const VisionConfig& c, GgmlType type, std::vector<Tensor>& out) {
  const std::uint64_t width = c.hidden_size, inner = c.intermediate_size;
  const auto linear = [&](const std::string& name, std::uint64_t rows, std::uint64_t columns) {
    out.push_back(make_tensor(name + ".weight", type, {rows, columns}));
    out.push_back(make_tensor(name + ".bias", type, {rows}));
  };
  const auto norm = [&](const std::string& name) {
    out.push_back(make_tensor(name + ".weight", type, {width}));
    out.push_back(make_tensor(name + ".bias", type, {width}));
  };
  const std::string tower = "model.vision_model.";
  out.push_back(make_tensor(tower + "embeddings.patch_embedding.weight", type, {width, 3, c.patch_size, c.patch_size}));
  out.push_back(make_tensor(tower + "embeddings.patch_embedding.bias", type, {width}));
  out.push_back(make_tensor(tower + "embeddings.position_embedding.weight", type, {c.num_patches(), width}));
  for (std::uint32_t i = 0; i < c.num_layers; ++i) {
    const std::string at = tower + "encoder.layers." + std::to_string(i) + ".";
    norm(at + "layer_norm1");
    norm(at + "layer_norm2");
    for (const char* part : {"q_proj", "k_proj", "v_proj", "out_proj"}) linear(at + "self_attn." + part, width, width);
    linear(at + "mlp.fc1", inner, width);
    linear(at + "mlp.fc2", width, inner);
  }
  norm(tower + "post_layernorm");
  out.push_back(make_tensor("model.connector.modality_projection.proj.weight", type, {c.output_size, c.shuffled_size()}));
}

// A folder that `config` describes, pictures cut into tiles of the encoder's side.
inline void write_vision_folder(const std::string& folder, const boost::json::value& config, std::string_view kind,
                                std::uint32_t longest_edge = 64) {
  const auto model = config_from_hf(JsonRef(config, "config.json"));
  QUIRE_CHECK(model.has_value() && model->vision.has_value(), "a config of a model that sees");
  std::vector<Tensor> tensors = make_tensors(*model, false, kind);
  for (Tensor& tensor : tensors)
    if (tensor.name.starts_with("model.")) tensor = make_tensor("model.text_model." + tensor.name.substr(6), tensor.type, tensor.shape);
  add_vision_tensors(*model->vision, type_named(kind), tensors);
  write_hf_folder(folder, config, tensors);
  const std::string side = std::to_string(model->vision->image_size);
  write_file(folder + "/preprocessor_config.json", R"({"image_processor_type": "Idefics3ImageProcessor", "image_mean": [0.5, 0.5, 0.5],
      "image_std": [0.5, 0.5, 0.5], "resample": 1, "size": {"longest_edge": )" +
                                                       std::to_string(longest_edge) + R"(}, "max_image_size": {"longest_edge": )" + side +
                                                       "}}");
}

inline std::vector<std::uint8_t> drawn_bytes(std::string_view name, std::size_t count) {
  Random random(fnv1a(name));
  std::vector<std::uint8_t> bytes(count);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.next() >> 56U);
  return bytes;
}

}  // namespace quire::tiny
