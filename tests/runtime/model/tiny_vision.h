#pragma once
// Small models that support images: a folder of Idefics3, SmolVLM, LLaVA or Gemma 3.
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

// Adds tensors with transformers' names, including tensors of a file that images do not use.
inline void add_vision_tensors(const VisionConfig& c, GgmlType type, std::vector<Tensor>& out) {
  const std::uint64_t width = c.hidden_size, inner = c.intermediate_size;
  const auto vector = [&](const std::string& name, std::uint64_t size) { out.push_back(make_tensor(name, type, {size})); };
  const auto linear = [&](const std::string& name, std::uint64_t rows, std::uint64_t columns, bool has_bias = true) {
    out.push_back(make_tensor(name + ".weight", type, {rows, columns}));
    if (has_bias) vector(name + ".bias", rows);
  };
  const auto norm = [&](const std::string& name) {
    vector(name + ".weight", width);
    vector(name + ".bias", width);
  };
  const std::string tower = "model." + std::string(c.tower);
  out.push_back(make_tensor(tower + "embeddings.patch_embedding.weight", type, {width, 3, c.patch_size, c.patch_size}));
  if (c.patch_bias) vector(tower + "embeddings.patch_embedding.bias", width);
  if (c.class_token) vector(tower + "embeddings.class_embedding", width);
  out.push_back(make_tensor(tower + "embeddings.position_embedding.weight", type, {c.num_rows(), width}));
  if (c.pre_norm) norm(tower + "pre_layrnorm");
  for (std::uint32_t i = 0; i < c.num_layers + c.num_unused_layers; ++i) {
    const std::string at = tower + "encoder.layers." + std::to_string(i) + ".";
    norm(at + "layer_norm1");
    norm(at + "layer_norm2");
    for (const char* part : {"q_proj", "k_proj", "v_proj", "out_proj"}) linear(at + "self_attn." + part, width, width);
    linear(at + "mlp.fc1", inner, width);
    linear(at + "mlp.fc2", width, inner);
  }
  norm(tower + "post_layernorm");
  if (c.averages_patches) {
    vector("model.multi_modal_projector.mm_soft_emb_norm.weight", width);
    out.push_back(make_tensor("model.multi_modal_projector.mm_input_projection_weight", type, {width, c.output_size}));
    return;
  }
  if (!c.projector) {
    out.push_back(make_tensor("model.connector.modality_projection.proj.weight", type, {c.output_size, c.shuffled_size()}));
    return;
  }
  vector(tower + "head.probe", width);
  linear("model.multi_modal_projector.linear_1", c.output_size, c.shuffled_size(), c.projector_bias);
  linear("model.multi_modal_projector.linear_2", c.output_size, c.output_size, c.projector_bias);
}

inline std::string replace_start(const std::string& name, std::string_view from, std::string_view to) {
  return name.starts_with(from) ? std::string(to) + name.substr(from.size()) : name;
}

// Returns the tensor name of published LLaVA folders. The newest versions of transformers write the names of add_vision_tensors().
inline std::string older_name(std::string name) {
  for (const auto& [from, to] : {std::pair("model.language_model.", "language_model.model."),
                                 {"lm_head.", "language_model.lm_head."},
                                 {"model.vision_tower.", "vision_tower."},
                                 {"model.multi_modal_projector.", "multi_modal_projector."}})
    if (name.starts_with(from)) return replace_start(name, from, to);
  return name;
}

// Returns the tensor name of LLaVA's and Gemma 3's in transformers 5.
inline std::string newest_name(std::string name) {
  return replace_start(older_name(std::move(name)), "vision_tower.vision_model.", "vision_tower.");
}

inline std::string processor_of(const VisionConfig& c, std::uint32_t longest_edge) {
  const std::string side = std::to_string(c.image_size);
  if (c.processor == "idefics3")
    return R"({"image_processor_type": "Idefics3ImageProcessor", "image_mean": [0.5, 0.5, 0.5],
      "image_std": [0.5, 0.5, 0.5], "resample": 1, "size": {"longest_edge": )" +
           std::to_string(longest_edge) + R"(}, "max_image_size": {"longest_edge": )" + side + "}}";
  const std::string square = R"({"height": )" + side + R"(, "width": )" + side + "}";
  if (c.processor == "gemma3") return R"({"image_processor_type": "Gemma3ImageProcessor", "size": )" + square + "}";
  if (!c.class_token) return R"({"image_processor_type": "SiglipImageProcessor", "size": )" + square + "}";
  return R"({"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": )" + side + R"(}, "crop_size": )" + square + "}";
}

// Writes the folder that `config` describes. Idefics3's images are split into tiles of the encoder's side.
inline void write_vision_folder(const std::string& folder, const boost::json::value& config, std::string_view kind,
                                std::uint32_t longest_edge = 64, std::string (*rename)(std::string) = nullptr) {
  const auto model = config_from_hf(JsonRef(config, "config.json"));
  QUIRE_CHECK(model.has_value() && model->vision.has_value(), "the config describes a model that supports images");
  const std::string decoder = model->vision->processor == "idefics3" ? "model.text_model." : "model.language_model.";
  std::vector<Tensor> tensors = make_tensors(*model, false, kind);
  for (Tensor& tensor : tensors) tensor = make_tensor(replace_start(tensor.name, "model.", decoder), tensor.type, tensor.shape);
  add_vision_tensors(*model->vision, type_named(kind), tensors);
  if (rename != nullptr)
    for (Tensor& tensor : tensors) tensor.name = rename(tensor.name);
  write_hf_folder(folder, config, tensors);
  write_file(folder + "/preprocessor_config.json", processor_of(*model->vision, longest_edge));
}

inline std::vector<std::uint8_t> drawn_bytes(std::string_view name, std::size_t count) {
  Random random(fnv1a(name));
  std::vector<std::uint8_t> bytes(count);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.next() >> 56U);
  return bytes;
}

}  // namespace quire::tiny
