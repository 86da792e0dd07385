// Reads the image encoders of Qwen2-VL and Qwen2.5-VL; defaults follow transformers' classes. Called once per model, when its headers are
// read. A value of config.json that the encoder does not support is an error that names the key.
#include <fmt/format.h>

#include <tuple>
#include <utility>

#include "format/quote.h"
#include "runtime/model/config/vision_readers.h"

namespace quire {
namespace {

constexpr std::uint32_t kMaxNumber = 1U << 16U;

Error wrong_key(const char* key, std::string problem) {
  return {ErrorCode::corrupt, fmt::format("config.json: vision_config.{}", key), std::move(problem),
          "use the config that belongs to the weights"};
}

// Reads Qwen2-VL. Its width is `embed_dim`; its `hidden_size` is the width of the outputs, unlike in Qwen2.5-VL.
void read_qwen2(JsonFields& fields, VisionConfig& config) {
  config.hidden_size = fields.get_or<std::uint32_t>("embed_dim", 1280);
  const auto ratio = fields.get_or<double>("mlp_ratio", 4.0);
  const double inner = config.hidden_size * ratio;
  if (inner >= 1.0 && inner <= kMaxNumber)
    config.intermediate_size = static_cast<std::uint32_t>(inner);
  else
    fields.refuse(wrong_key("mlp_ratio", fmt::format("is {}, which is out of range", ratio)));
  const auto activation = fields.get_or<std::string>("hidden_act", "quick_gelu");
  if (const auto known = vision_activation_of(activation))
    config.activation = *known;
  else
    refuse_key(fields, "vision_config.hidden_act", fmt::format("{} is not implemented", in_quotes(activation)),
               "use a model with quick_gelu");
}

void read_full_attention_layers(const JsonRef& json, JsonFields& fields, VisionConfig& config) {
  config.full_attention_layers = {7, 15, 23, 31};
  const auto list = json.find("fullatt_block_indexes");
  if (!list) return;
  config.full_attention_layers.clear();
  const auto elements = list->elements();
  if (!elements) return fields.refuse(elements.error());
  for (const JsonRef& element : *elements) {
    const auto layer = element.as<std::uint32_t>();
    if (!layer) return fields.refuse(layer.error());
    config.full_attention_layers.push_back(*layer);
  }
}

void read_qwen2_5(const JsonRef& json, JsonFields& fields, VisionConfig& config) {
  config.hidden_size = fields.get_or<std::uint32_t>("hidden_size", 3584);
  config.intermediate_size = fields.get_or<std::uint32_t>("intermediate_size", 3420);
  if (const auto activation = fields.get_or<std::string>("hidden_act", "silu"); activation != "silu")
    refuse_key(fields, "vision_config.hidden_act", fmt::format("{} is not implemented", in_quotes(activation)), "use a model with silu");
  read_full_attention_layers(json, fields, config);
  const auto pixels = fields.get_or<std::uint32_t>("window_size", 112);
  if (config.shuffle == 0 || config.patch_size == 0) return;
  config.window = pixels / config.shuffle / config.patch_size;
  if (config.window == 0 || config.window > kMaxNumber)
    fields.refuse(wrong_key("window_size", fmt::format("is {} pixels, which is out of range", pixels)));
}

std::optional<Error> check_numbers(const VisionConfig& config) {
  constexpr std::uint32_t kMostSide = 64;
  const auto in_range = [](std::uint32_t value, std::uint32_t most) { return value > 0 && value <= most; };
  for (const auto& [key, value, most] : {std::tuple(config.is_gated ? "hidden_size" : "embed_dim", config.hidden_size, kMaxNumber),
                                         {"intermediate_size", config.intermediate_size, kMaxNumber},
                                         {"depth", config.num_layers, kMaxNumber},
                                         {"num_heads", config.num_heads, kMaxNumber},
                                         {"patch_size", config.patch_size, kMostSide},
                                         {"spatial_merge_size", config.shuffle, kMostSide},
                                         {"temporal_patch_size", config.frames, kMostSide}})
    if (!in_range(value, most)) return wrong_key(key, fmt::format("is {}, which is out of range", value));
  // Half of the pairs of a head rotate by the row, and half by the column.
  if (config.hidden_size % config.num_heads != 0 || config.head_dim() % 4 != 0 || config.head_dim() > kMaxVisionHeadDim)
    return wrong_key("num_heads",
                     fmt::format("{} heads cannot divide {} values into heads of a supported size", config.num_heads, config.hidden_size));
  return std::nullopt;
}

Result<VisionConfig> read_qwen_vision(const JsonRef& json, bool is_gated, std::uint32_t output_size) {
  const auto vision = json.at("vision_config");
  if (!vision) return std::unexpected(vision.error());
  JsonFields fields(*vision, NullMeans::none), outer(json, NullMeans::none);
  VisionConfig config{.processor = "qwen2_vl"};
  config.is_gated = is_gated;
  config.has_grid_positions = true;
  config.num_layers = fields.get_or<std::uint32_t>("depth", 32);
  config.num_heads = fields.get_or<std::uint32_t>("num_heads", 16);
  config.patch_size = fields.get_or<std::uint32_t>("patch_size", 14);
  config.shuffle = fields.get_or<std::uint32_t>("spatial_merge_size", 2);
  config.frames = fields.get_or<std::uint32_t>("temporal_patch_size", 2);
  is_gated ? read_qwen2_5(*vision, fields, config) : read_qwen2(fields, config);
  if (const auto channels = fields.get_or<std::uint32_t>("in_channels", 3); channels != 3)
    refuse_key(fields, "vision_config.in_channels", fmt::format("{} is not implemented", channels), "use a model with 3 colour channels");
  const char* const output = is_gated ? "out_hidden_size" : "hidden_size";
  config.output_size = fields.get_or<std::uint32_t>(output, 3584);
  config.token = outer.get_or<std::int32_t>("image_token_id", 151655);
  for (const auto& error : {fields.error(), outer.error()})
    if (error) return std::unexpected(*error);
  if (config.output_size != output_size)
    return std::unexpected(
        wrong_key(output, fmt::format("is {}, but the hidden size of the decoder is {}", config.output_size, output_size)));
  if (auto error = check_numbers(config)) return std::unexpected(std::move(*error));
  return config;
}

}  // namespace

Result<VisionConfig> read_qwen2_vision(const JsonRef& config, std::uint32_t output_size) {
  return read_qwen_vision(config, false, output_size);
}

Result<VisionConfig> read_qwen2_5_vision(const JsonRef& config, std::uint32_t output_size) {
  return read_qwen_vision(config, true, output_size);
}

}  // namespace quire
