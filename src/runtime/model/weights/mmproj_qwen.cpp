// Translates the keys of the encoders of Qwen2-VL and Qwen2.5-VL.
#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <cstdint>
#include <utility>

#include "runtime/model/config/config_fields.h"
#include "runtime/model/weights/mmproj_keys.h"

namespace quire {
namespace {

// Returns the inner width of layers from their tensors, because files of Qwen2-VL store another number and older files name the first
// product `down`.
std::uint32_t inner_size(const GgufFile& file, std::uint64_t hidden_size) {
  const GgufTensor* const product = file.find_tensor("v.blk.0.ffn_up.weight");
  if (product == nullptr) return 0;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(product->rows() == hidden_size ? product->columns() : product->rows(), ~0U));
}

struct QwenKeys {
  std::uint32_t hidden_size, whole_each;  // every whole_each-th layer has attention over all patches
  boost::json::object vision;             // keys that both families have
};

// Reads the keys that both families have. The epsilon of the norms is transformers' and not the file's.
Result<QwenKeys> qwen_keys(const GgufFile& file, std::uint32_t default_shuffle) {
  ClipKeys keys(file);
  QwenKeys out;
  for (const auto& [name, key] :
       {std::pair("depth", "block_count"), std::pair("num_heads", "attention.head_count"), std::pair("patch_size", "patch_size")})
    out.vision[name] = keys.need<std::uint32_t>(key);
  out.hidden_size = keys.need<std::uint32_t>("embedding_length");
  out.vision["spatial_merge_size"] = keys.get_or<std::uint32_t>("spatial_merge_size", default_shuffle);
  out.vision["window_size"] = keys.get_or<std::uint32_t>("window_size", 112);
  out.whole_each = keys.get_or<std::uint32_t>("n_wa_pattern", 0);
  const auto is_silu = file.get_or<bool>("clip.use_silu", false), is_gelu = file.get_or<bool>("clip.use_gelu", false);
  for (const auto* flag : {&is_silu, &is_gelu})
    if (!*flag) return std::unexpected(flag->error());
  out.vision["hidden_act"] = *is_silu ? "silu" : *is_gelu ? "gelu" : "quick_gelu";
  if (const auto& error = keys.error()) return std::unexpected(*error);
  return out;
}

}  // namespace

Result<boost::json::object> qwen2_config(const GgufFile& file, const ModelConfig& decoder, std::uint32_t default_shuffle) {
  auto keys = qwen_keys(file, default_shuffle);
  if (!keys) return std::unexpected(std::move(keys.error()));
  boost::json::object& vision = keys->vision;
  vision["embed_dim"] = keys->hidden_size;
  vision["mlp_ratio"] = (inner_size(file, keys->hidden_size) + 0.5) / std::max(keys->hidden_size, 1U);
  vision["hidden_size"] = decoder.hidden_size;
  return boost::json::object{{"vision_config", std::move(vision)}};
}

Result<boost::json::object> qwen2_5_config(const GgufFile& file, const ModelConfig& decoder, std::uint32_t default_shuffle) {
  auto keys = qwen_keys(file, default_shuffle);
  if (!keys) return std::unexpected(std::move(keys.error()));
  boost::json::object& vision = keys->vision;
  vision["hidden_size"] = keys->hidden_size;
  vision["intermediate_size"] = inner_size(file, keys->hidden_size);
  vision["out_hidden_size"] = decoder.hidden_size;
  const std::uint64_t num_layers = std::min(vision["depth"].to_number<std::uint32_t>(), kMaxLayers);
  boost::json::array whole;
  for (std::uint64_t end = keys->whole_each; end > 0 && end <= num_layers; end += keys->whole_each) whole.emplace_back(end - 1);
  vision["fullatt_block_indexes"] = std::move(whole);
  return boost::json::object{{"vision_config", std::move(vision)}};
}

// Returns the contents of preprocessor_config.json. Missing values are llama.cpp's defaults: 8 to 4,096 embeddings.
Result<boost::json::object> qwen_processor(const GgufFile& file, const VisionConfig& vision) {
  ClipKeys keys(file);
  const std::uint64_t side = std::uint64_t{vision.patch_size} * vision.shuffle, square = side * side;
  boost::json::object json{{"patch_size", vision.patch_size}, {"merge_size", vision.shuffle}, {"temporal_patch_size", vision.frames}};
  json["image_mean"] = keys.colours("image_mean");
  json["image_std"] = keys.colours("image_std");
  const auto least = keys.get_or<std::uint32_t>("image_min_pixels", 0), most = keys.get_or<std::uint32_t>("image_max_pixels", 0);
  json["min_pixels"] = least == 0 ? 8 * square : least;
  json["max_pixels"] = most == 0 ? 4096 * square : most;
  if (const auto& error = keys.error()) return std::unexpected(*error);
  return json;
}

}  // namespace quire
