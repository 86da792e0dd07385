// Reads which layers have a state, and the shape of the state. Called once per model, when its headers are read, for both file formats.
// Names and defaults follow transformers' model classes and llama.cpp's converter.
#include "runtime/model/config/config_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/quote.h"
#include "runtime/model/config/config_blocks.h"
#include "runtime/model/config/config_layers.h"

namespace quire {
namespace {

// Returns the kind of each layer from a list. `state` is the list's name for a layer with a state. Instead of "mamba", transformers 5 may
// write "linear_attention".
std::vector<LayerMemory> read_layer_types(const JsonRef& json, std::string_view key, std::string_view state, JsonFields& fields,
                                          const ModelConfig& config) {
  std::vector<LayerMemory> memories;
  const auto has_state = [&](std::string_view type) { return type == state || (state == "mamba" && type == "linear_attention"); };
  for (const JsonRef& entry : layer_list(json, key, fields, config)) {
    const auto type = entry.as<std::string_view>();
    if (!type)
      fields.refuse(type.error());
    else if (!has_state(*type) && *type != "full_attention" && *type != "attention")
      fields.refuse({ErrorCode::unsupported, entry.path(), fmt::format("{} is not implemented", in_quotes(*type)),
                     fmt::format("use a model with \"{}\" and attention layers only", state)});
    memories.push_back(type && has_state(*type) ? LayerMemory::state : LayerMemory::attention);
  }
  return memories;
}

// Returns the kind of each layer from an older config, which lists the attention layers.
std::vector<LayerMemory> read_attending(const JsonRef& json, std::string_view key, JsonFields& fields, const ModelConfig& config) {
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
      fields.refuse({ErrorCode::corrupt, entry.path(), fmt::format("lists layer {}, which does not exist", *layer),
                     "use the config that belongs to the weights"});
  }
  return memories;
}

// Computes the feed-forward width from the config, as Lfm2MLP does.
std::uint32_t adjusted_width(JsonFields& fields, std::uint32_t width) {
  if (!fields.get_or<bool>("block_auto_adjust_ff_dim", true)) return width;
  const auto factor = fields.get_optional<double>("block_ffn_dim_multiplier").value_or(1.0);
  const auto multiple = fields.get_or<std::uint32_t>("block_multiple_of", 256);
  constexpr std::uint32_t kMost = 1U << 20;
  if (!(factor > 0.0 && factor < 1000.0) || multiple == 0 || multiple > kMost || width > kMost) {
    refuse_key(fields, "block_ffn_dim_multiplier",
               fmt::format("the factor {} with block_multiple_of {} does not give a valid feed-forward width", factor, multiple),
               "use the config that belongs to the weights");
    return width;
  }
  const std::uint64_t usual = std::uint64_t{2} * width / 3;
  const auto scaled = static_cast<std::uint64_t>(factor * static_cast<double>(usual));
  return static_cast<std::uint32_t>((scaled + multiple - 1) / multiple * multiple);
}

// Reads the keys that the three families with Mamba-2 layers share. `width`: total width of all heads, if the config has it.
void read_mamba(const JsonRef& json, JsonFields& fields, std::optional<std::uint32_t> width, ModelConfig& config) {
  StateShape& state = config.state;
  state.kind = StateKind::mamba2;
  state.decay_as_log = true;
  state.conv_taps = fields.get_or<std::uint32_t>("mamba_d_conv", 4);
  state.conv_bias = fields.get_or<bool>("mamba_conv_bias", true);
  state.input_bias = fields.get_or<bool>("mamba_proj_bias", false);
  state.output_bias = state.input_bias;
  state.heads = fields.get_or<std::uint32_t>("mamba_n_heads", 128);
  state.groups = fields.get_or<std::uint32_t>("mamba_n_groups", 1);
  state.size = fields.get_or<std::uint32_t>("mamba_d_state", 256);
  const double expanded = width ? 0.0 : fields.get_or<double>("mamba_expand", 2.0) * config.hidden_size;
  const std::uint32_t inner = width ? *width : expanded >= 0.0 && expanded < 4e9 ? static_cast<std::uint32_t>(expanded) : 0;
  const auto head_dim = json.find("mamba_d_head");
  const bool is_auto = !head_dim || head_dim->as<std::string_view>().value_or("") == "auto";
  state.head_dim = is_auto ? inner / std::max(state.heads, 1U) : fields.get_or<std::uint32_t>("mamba_d_head", 0);
  if (std::uint64_t{state.heads} * state.head_dim != inner) {
    fields.refuse({ErrorCode::corrupt, "config.json: mamba_n_heads",
                   fmt::format("{} heads of {} values do not give {} values", state.heads, state.head_dim, inner),
                   "use the config that belongs to the weights"});
  }
  check_step_limit(json, fields);
}

std::vector<float> read_scales(const JsonRef& json, std::string_view key, std::size_t count, JsonFields& fields) {
  std::vector<float> scales(count, 1.0F);
  const auto list = json.find(key);
  if (!list) return scales;
  const auto entries = list->elements();
  if (!entries) {
    fields.refuse(entries.error());
    return scales;
  }
  if (entries->size() != count)
    fields.refuse({ErrorCode::corrupt, list->path(), fmt::format("has {} factors, but must have {}", entries->size(), count),
                   "use the config that belongs to the weights"});
  for (std::size_t i = 0; i < std::min(count, entries->size()); ++i) {
    const auto scale = (*entries)[i].as<float>();
    if (!scale) fields.refuse(scale.error());
    scales[i] = scale.value_or(1.0F);
  }
  return scales;
}

bool has_tensor(const GgufFile& file, std::string_view part) {
  return std::ranges::any_of(file.tensors(), [&](const GgufTensor& tensor) { return tensor.name.ends_with(part); });
}

}  // namespace

void drop_unused_states(ModelConfig& config) {
  if (std::ranges::any_of(config.layer_memories, [](LayerMemory memory) { return memory != LayerMemory::attention; })) return;
  config.layer_memories.clear();
  config.state = {};
}

void read_short_convs(const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  config.rope_theta = fields.get_or<double>("theta", config.rope_theta);
  config.tied_embeddings = fields.get_or<bool>("tie_embedding", config.tied_embeddings);
  config.layer_memories = read_layer_types(json, "layer_types", "conv", fields, config);
  if (config.layer_memories.empty()) config.layer_memories = read_attending(json, "full_attn_idxs", fields, config);
  const bool bias = fields.get_or<bool>("conv_bias", false);
  config.state = {.kind = StateKind::short_conv,
                  .conv_taps = fields.get_or<std::uint32_t>("conv_L_cache", 3),
                  .conv_bias = bias,
                  .input_bias = bias,
                  .output_bias = bias};
}

// Reads LFM2. Its feed-forward width follows from a factor. Older configs store the width under a separate key.
void read_lfm2(const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  config.intermediate_size = adjusted_width(fields, fields.get_or<std::uint32_t>("block_ff_dim", config.intermediate_size));
  read_short_convs(json, fields, config);
}

// Reads Granite's hybrid models, including the experts and the shared expert. In a model without experts, the shared expert's width is the
// width of the feed-forward part.
void read_granite_hybrid(const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  read_mamba(json, fields, std::nullopt, config);
  config.state.has_norm = true;
  config.layer_memories = read_layer_types(json, "layer_types", "mamba", fields, config);
  if (config.layer_memories.empty()) config.layer_memories.assign(std::min(config.num_layers, kMaxLayers), LayerMemory::state);
  if (fields.get_optional<std::string>("position_embedding_type").value_or("nope") != "rope") config.nope_layer_interval = 1;
  const auto shared = fields.get_or<std::uint32_t>("shared_intermediate_size", 1024);
  config.num_experts = fields.get_or<std::uint32_t>("num_local_experts", 8);
  if (config.num_experts == 0) {
    config.intermediate_size = shared;
    config.fused_gate_up = true;
    return;
  }
  config.experts_per_token = fields.get_or<std::uint32_t>("num_experts_per_tok", 2);
  config.expert_size = config.intermediate_size;
  config.shared_expert_size = shared;
  config.fused_shared_gate_up = true;
  config.has_shared_expert_gate = false;
  config.normalize_experts = true;
  config.expert_tensors = ExpertTensors::stacked_gate_up;
}

void read_bamba(const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  read_mamba(json, fields, std::nullopt, config);
  config.state.has_norm = true;
  config.layer_memories = read_attending(json, "attn_layer_indices", fields, config);
  if (config.layer_memories.empty()) config.layer_memories.assign(std::min(config.num_layers, kMaxLayers), LayerMemory::state);
}

// Reads Falcon-H1. Every layer has attention and a state. The input factor of attention scales queries, keys and values, so scores contain
// the factor twice and values once.
void read_falcon_h1(const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  config.layer_memories.assign(std::min(config.num_layers, kMaxLayers), LayerMemory::both);
  read_mamba(json, fields, fields.get_optional<std::uint32_t>("mamba_d_ssm"), config);
  StateShape& state = config.state;
  state.output_bias = fields.get_or<bool>("projectors_bias", false);
  state.has_norm = fields.get_or<bool>("mamba_rms_norm", false);
  state.norm_groups = state.groups;
  state.is_gate_after_norm = fields.get_or<bool>("mamba_norm_before_gate", true);
  const auto scale = [&fields](const char* key) { return fields.get_optional<float>(key).value_or(1.0F); };
  state.input_scale = scale("ssm_in_multiplier");
  state.output_scale = scale("ssm_out_multiplier");
  std::ranges::copy(read_scales(json, "ssm_multipliers", state.part_scales.size(), fields), state.part_scales.begin());
  const float input = scale("attention_in_multiplier");
  config.attention_scale *= input * input * scale("key_multiplier");
  config.attention_output_scale = input * scale("attention_out_multiplier");
  const std::vector<float> mlp = read_scales(json, "mlp_multipliers", 2, fields);
  config.gate_scale = mlp[0];
  config.down_scale = mlp[1];
  config.embedding_scale = scale("embedding_multiplier");
  config.logit_divisor = 1.0F / scale("lm_head_multiplier");
  for (const char* key : {"attention_bias", "mlp_bias"})
    if (fields.get_or<bool>(key, false)) refuse_key(fields, key, "is not implemented for this architecture", "use a model without it");
}

void read_qwen3_next(const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  config.norm_offset = 1.0F;  // for all norms except the norm after the delta rule
  config.gated_attention = true;
  config.layer_memories = read_layer_types(json, "layer_types", "linear_attention", fields, config);
  const auto interval = fields.get_or<std::uint32_t>("full_attention_interval", 4);
  for (std::uint32_t i = 0; !json.find("layer_types") && i < std::min(config.num_layers, kMaxLayers); ++i)
    config.layer_memories.push_back(interval > 0 && (i + 1) % interval == 0 ? LayerMemory::attention : LayerMemory::state);
  config.state = {.kind = StateKind::gated_delta,
                  .conv_taps = fields.get_or<std::uint32_t>("linear_conv_kernel_dim", 4),
                  .heads = fields.get_or<std::uint32_t>("linear_num_value_heads", 32),
                  .head_dim = fields.get_or<std::uint32_t>("linear_value_head_dim", 128),
                  .groups = fields.get_or<std::uint32_t>("linear_num_key_heads", 16),
                  .size = fields.get_or<std::uint32_t>("linear_key_head_dim", 128),
                  .decay_as_log = true,
                  .has_norm = true};
  if (fields.get_or<bool>("attention_bias", false))
    refuse_key(fields, "attention_bias", "is not implemented for this architecture", "use a model without it");
}

void read_short_convs(const GgufFile& file, ConfigFields<GgufFile>& fields, ModelConfig& config) {
  config.state = {.kind = StateKind::short_conv,
                  .conv_taps = fields.need<std::uint32_t>("shortconv.l_cache"),
                  .conv_bias = has_tensor(file, "shortconv.conv.bias"),
                  .input_bias = has_tensor(file, "shortconv.in_proj.bias"),
                  .output_bias = has_tensor(file, "shortconv.out_proj.bias")};
}

void read_mamba(const GgufFile& file, ConfigFields<GgufFile>& fields, ModelConfig& config) {
  StateShape& state = config.state;
  const auto inner = fields.need<std::uint32_t>("ssm.inner_size");
  state.kind = StateKind::mamba2;
  state.conv_taps = fields.need<std::uint32_t>("ssm.conv_kernel");
  state.conv_bias = has_tensor(file, "ssm_conv1d.bias");
  state.input_bias = has_tensor(file, "ssm_in.bias");
  state.output_bias = has_tensor(file, "ssm_out.bias");
  state.heads = fields.need<std::uint32_t>("ssm.time_step_rank");  // llama.cpp's name for the number of heads
  state.head_dim = inner / std::max(state.heads, 1U);
  state.groups = fields.need<std::uint32_t>("ssm.group_count");
  state.size = fields.need<std::uint32_t>("ssm.state_size");
  state.has_norm = has_tensor(file, "ssm_norm.weight");
  state.norm_groups = state.groups;
  if (state.heads * std::uint64_t{state.head_dim} != inner) {
    fields.refuse({ErrorCode::corrupt, fields.field("ssm.inner_size"),
                   fmt::format("{} heads cannot divide {} values evenly", state.heads, inner), "download or convert the file again"});
  }
  config.has_shared_expert_gate = false;
  // The feed-forward part of a model without experts has a separate width, but no key for it.
  const GgufTensor* gate = file.find_tensor("blk.0.ffn_gate.weight");
  if (config.num_experts == 0 && gate != nullptr)
    config.intermediate_size = static_cast<std::uint32_t>(std::min<std::uint64_t>(gate->rows(), ~0U));
}

void read_falcon_h1(const GgufFile& file, ConfigFields<GgufFile>& fields, ModelConfig& config) {
  config.layer_memories.assign(std::min(config.num_layers, kMaxLayers), LayerMemory::both);
  read_mamba(file, fields, config);
}

void read_granite_hybrid(const GgufFile& file, ConfigFields<GgufFile>& fields, ModelConfig& config) {
  read_mamba(file, fields, config);
  if (config.rotary_dim != config.head_dim && config.layer_rotates(0)) {
    fields.refuse(
        {ErrorCode::unsupported, fields.field("rope.dimension_count"),
         fmt::format("RoPE applies to {} of {} dimensions, whose order in this GGUF file is unknown", config.rotary_dim, config.head_dim),
         "use the Hugging Face folder of the model"});
  }
}

// llama.cpp's converter has already added 1 to the norm weights. Layers with attn_q are attention layers; all others are gated delta nets.
// In newer files, attn_qkv contains the inputs of the convolution and not a fused QKV matrix, so `fused_qkv` is false.
void read_qwen3_next(const GgufFile& file, ConfigFields<GgufFile>& fields, ModelConfig& config) {
  config.gated_attention = config.late_norm_name = true;
  config.fused_qkv = false;
  StateShape& state = config.state;
  const auto inner = fields.need<std::uint32_t>("ssm.inner_size");
  state = {.kind = StateKind::gated_delta,
           .conv_taps = fields.need<std::uint32_t>("ssm.conv_kernel"),
           .heads = fields.need<std::uint32_t>("ssm.time_step_rank"),
           .groups = fields.need<std::uint32_t>("ssm.group_count"),
           .size = fields.need<std::uint32_t>("ssm.state_size"),
           .has_norm = true};
  state.head_dim = inner / std::max(state.heads, 1U);
  config.layer_memories.assign(std::min(config.num_layers, kMaxLayers), LayerMemory::state);
  for (std::uint32_t i = 0; i < config.layer_memories.size(); ++i)
    if (file.find_tensor(fmt::format("blk.{}.attn_q.weight", i)) != nullptr) config.layer_memories[i] = LayerMemory::attention;
}

void read_kv_heads(const GgufFile& file, bool may_have_states, ConfigFields<GgufFile>& fields, ModelConfig& config) {
  constexpr std::string_view kKey = "attention.head_count_kv";
  const std::string key = fields.field(kKey);
  const GgufValue* value = file.find(key);
  if (value == nullptr || value->type != GgufValueType::array || !may_have_states) {
    config.num_kv_heads = fields.get_or<std::uint32_t>(kKey, config.num_heads);
    return;
  }
  const auto heads = file.get_array<std::uint32_t>(key);
  if (!heads) return fields.refuse(heads.error());
  if (heads->size() != config.num_layers)
    return fields.refuse({ErrorCode::corrupt, key,
                          fmt::format("has {} entries, but the model has {} layers", heads->size(), config.num_layers),
                          "download or convert the file again"});
  config.num_kv_heads = heads->empty() ? 0 : std::ranges::max(*heads);
  for (const std::uint32_t count : *heads) {
    if (count != 0 && count != config.num_kv_heads)
      fields.refuse({ErrorCode::unsupported, key, fmt::format("has {} heads in one layer, but {} in another", count, config.num_kv_heads),
                     "use a model with the same number of KV heads in all attention layers"});
    config.layer_memories.push_back(count == 0 ? LayerMemory::state : LayerMemory::attention);
  }
}

}  // namespace quire
