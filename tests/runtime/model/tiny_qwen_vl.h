#pragma once
// Small models that support images: a folder of Qwen2-VL or Qwen2.5-VL.
#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/json.h"
#include "runtime/model/config/vision_config.h"
#include "runtime/model/tiny_model.h"

namespace quire::tiny {

inline std::vector<Tensor> qwen_vision_tensors(const VisionConfig& c, GgmlType type, const std::string& part) {
  std::vector<Tensor> out;
  const std::uint64_t width = c.hidden_size, inner = c.intermediate_size, merged = c.shuffled_size();
  const auto linear = [&](const std::string& name, std::uint64_t rows, std::uint64_t columns) {
    out.push_back(make_tensor(part + name + ".weight", type, {rows, columns}));
    out.push_back(make_tensor(part + name + ".bias", type, {rows}));
  };
  const auto norm = [&](const std::string& name) {
    out.push_back(make_tensor(part + name + ".weight", type, {width}));
    if (!c.is_gated) out.push_back(make_tensor(part + name + ".bias", type, {width}));
  };
  out.push_back(make_tensor(part + "patch_embed.proj.weight", type, {width, 3, c.frames, c.patch_size, c.patch_size}));
  for (std::uint32_t i = 0; i < c.num_layers; ++i) {
    const std::string at = "blocks." + std::to_string(i) + ".";
    norm(at + "norm1");
    norm(at + "norm2");
    linear(at + "attn.qkv", 3 * width, width);
    linear(at + "attn.proj", width, width);
    if (c.is_gated) linear(at + "mlp.gate_proj", inner, width);
    linear(at + (c.is_gated ? "mlp.up_proj" : "mlp.fc1"), inner, width);
    linear(at + (c.is_gated ? "mlp.down_proj" : "mlp.fc2"), width, inner);
  }
  norm("merger.ln_q");
  linear("merger.mlp.0", merged, merged);
  linear("merger.mlp.2", c.output_size, merged);
  return out;
}

// Writes the folder that `config` describes. Tensors have the names of published folders, or, if the text has a separate config, the names
// of newer transformers versions.
inline void write_qwen_folder(const std::string& folder, const boost::json::value& config, std::string_view kind) {
  const auto model = config_from_hf(JsonRef(config, "config.json"));
  QUIRE_CHECK(model.has_value() && model->vision.has_value(), "the config describes a model that supports images");
  const bool is_newer = config.as_object().contains("text_config");
  std::vector<Tensor> tensors = make_tensors(*model, false, kind);
  for (Tensor& tensor : tensors)
    if (is_newer && tensor.name.starts_with("model."))
      tensor = make_tensor("model.language_model." + tensor.name.substr(6), tensor.type, tensor.shape);
  for (Tensor& tensor : qwen_vision_tensors(*model->vision, type_named(kind), is_newer ? "model.visual." : "visual."))
    tensors.push_back(std::move(tensor));
  write_hf_folder(folder, config, tensors);
  const std::string patch = std::to_string(model->vision->patch_size), merge = std::to_string(model->vision->shuffle);
  write_file(folder + "/preprocessor_config.json",
             R"({"image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 64, "max_pixels": 16384, "temporal_patch_size": 2,
                 "patch_size": )" +
                 patch + R"(, "merge_size": )" + merge + "}");
}

}  // namespace quire::tiny
