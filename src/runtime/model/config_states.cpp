// Layers with a state: which they are, and the state's shape. Called once per model, when its headers are read, from either kind of file.
// Names and defaults are those of the model classes of transformers and of llama.cpp's converter.
#include "runtime/model/config_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "format/quote.h"
#include "runtime/model/config_layers.h"

namespace quire {
namespace {

using JsonFields = ConfigFields<JsonRef>;

void refuse(JsonFields& fields, std::string_view key, std::string message, std::string remedy) {
  fields.refuse({ErrorCode::unsupported, "config.json: " + std::string(key), std::move(message), std::move(remedy)});
}

// `state`: what a list calls a layer with one.
std::vector<LayerMemory> read_layer_types(const JsonRef& json, std::string_view key, std::string_view state, JsonFields& fields,
                                          const ModelConfig& config) {
  std::vector<LayerMemory> memories;
  for (const JsonRef& entry : layer_list(json, key, fields, config)) {
    const auto type = entry.as<std::string_view>();
    if (!type)
      fields.refuse(type.error());
    else if (*type != state && *type != "full_attention" && *type != "attention")
      fields.refuse({ErrorCode::unsupported, entry.path(), fmt::format("{} is not implemented", in_quotes(*type)),
                     fmt::format("use a model whose layers are \"{}\" and attention", state)});
    memories.push_back(type && *type == state ? LayerMemory::state : LayerMemory::attention);
  }
  return memories;
}

// Older configs list the layers that attend.
std::vector<LayerMemory> read_attending(const JsonRef& json, std::string_view key, JsonFields& fields, const ModelConfig& config) {
  constexpr std::uint32_t kMaxLayers = 4096;  // more: the config is refused later
  const auto list = json.find(key);
  if (!list) return {};
  const auto entries = list->elements();
  if (!entries) {
    fields.refuse(entries.error());
    return {};
  }
  std::vector<LayerMemory> memories(std::min(config.num_layers, kMaxLayers), LayerMemory::state);
  for (const JsonRef& entry : *entries) {
    const auto layer = entry.as<std::uint32_t>();
    if (!layer)
      fields.refuse(layer.error());
    else if (*layer < memories.size())
      memories[*layer] = LayerMemory::attention;
    else
      fields.refuse(
          {ErrorCode::corrupt, entry.path(), fmt::format("there is no layer {}", *layer), "use the config that belongs to the weights"});
  }
  return memories;
}

// As Lfm2MLP makes it of what the config says.
std::uint32_t adjusted_width(JsonFields& fields, std::uint32_t width) {
  if (!fields.get_or<bool>("block_auto_adjust_ff_dim", true)) return width;
  const auto factor = fields.get_optional<double>("block_ffn_dim_multiplier").value_or(1.0);
  const auto multiple = fields.get_or<std::uint32_t>("block_multiple_of", 256);
  constexpr std::uint32_t kMost = 1U << 20;
  if (!(factor > 0.0 && factor < 1000.0) || multiple == 0 || multiple > kMost || width > kMost) {
    refuse(fields, "block_ffn_dim_multiplier", fmt::format("{} and block_multiple_of {} make no width", factor, multiple),
           "use the config that belongs to the weights");
    return width;
  }
  const auto scaled = static_cast<std::uint64_t>(factor * static_cast<double>(std::uint64_t{2} * width / 3));
  return static_cast<std::uint32_t>((scaled + multiple - 1) / multiple * multiple);
}

void read_lfm2(const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  config.tensor_names = TensorNames::lfm2;
  config.qk_norm = QkNorm::per_head;
  config.norm_epsilon = fields.get_or<float>("norm_eps", 1e-5F);
  config.rope_theta = fields.get_or<double>("theta", config.rope_theta);
  config.tied_embeddings = fields.get_or<bool>("tie_embedding", config.tied_embeddings);
  config.intermediate_size = adjusted_width(fields, fields.get_or<std::uint32_t>("block_ff_dim", config.intermediate_size));
  config.layer_memories = read_layer_types(json, "layer_types", "conv", fields, config);
  if (config.layer_memories.empty()) config.layer_memories = read_attending(json, "full_attn_idxs", fields, config);
  const bool bias = fields.get_or<bool>("conv_bias", false);
  config.state = {.kind = StateKind::short_conv,
                  .conv_taps = fields.get_or<std::uint32_t>("conv_L_cache", 3),
                  .conv_bias = bias,
                  .input_bias = bias,
                  .output_bias = bias};
}

// One whose layers all attend is like any other.
void drop_unused(ModelConfig& config) {
  if (std::ranges::any_of(config.layer_memories, [](LayerMemory memory) { return memory != LayerMemory::attention; })) return;
  config.layer_memories.clear();
  config.state = {};
}

}  // namespace

bool may_have_states(std::string_view architecture) {
  return architecture == "lfm2";
}

void read_states(const JsonRef& json, ConfigFields<JsonRef>& fields, ModelConfig& config) {
  read_lfm2(json, fields, config);
  drop_unused(config);
}

void read_states(const GgufFile& file, ConfigFields<GgufFile>& fields, ModelConfig& config) {
  const auto has = [&](std::string_view part) {
    return std::ranges::any_of(file.tensors(), [&](const GgufTensor& tensor) { return tensor.name.ends_with(part); });
  };
  config.tensor_names = TensorNames::lfm2;
  config.qk_norm = QkNorm::per_head;
  config.state = {.kind = StateKind::short_conv,
                  .conv_taps = fields.need<std::uint32_t>("shortconv.l_cache"),
                  .conv_bias = has("shortconv.conv.bias"),
                  .input_bias = has("shortconv.in_proj.bias"),
                  .output_bias = has("shortconv.out_proj.bias")};
  drop_unused(config);
}

void read_kv_heads(const GgufFile& file, ConfigFields<GgufFile>& fields, ModelConfig& config) {
  constexpr std::string_view kKey = "attention.head_count_kv";
  const std::string key = fields.field(kKey);
  const GgufValue* value = file.find(key);
  if (value == nullptr || value->type != GgufValueType::array || !may_have_states(config.architecture)) {
    config.num_kv_heads = fields.get_or<std::uint32_t>(kKey, config.num_heads);
    return;
  }
  const auto heads = file.get_array<std::uint32_t>(key);
  if (!heads) return fields.refuse(heads.error());
  if (heads->size() != config.num_layers)
    return fields.refuse({ErrorCode::corrupt, key, fmt::format("{} entries for {} layers", heads->size(), config.num_layers),
                          "download or convert the file again"});
  config.num_kv_heads = heads->empty() ? 0 : std::ranges::max(*heads);
  for (const std::uint32_t count : *heads) {
    if (count != 0 && count != config.num_kv_heads)
      fields.refuse({ErrorCode::unsupported, key, fmt::format("{} heads in one layer and {} in another", count, config.num_kv_heads),
                     "use a model with one number of them"});
    config.layer_memories.push_back(count == 0 ? LayerMemory::state : LayerMemory::attention);
  }
}

}  // namespace quire
