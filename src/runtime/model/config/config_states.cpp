// Layers with a state: which they are, and the state's shape. Called once per model, when its headers are read, from either kind of file.
// Names and defaults are those of the model classes of transformers and of llama.cpp's converter.
#include "runtime/model/config/config_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "format/quote.h"
#include "runtime/model/config/config_blocks.h"
#include "runtime/model/config/config_layers.h"

namespace quire {
namespace {

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
  const auto list = json.find(key);
  if (!list) return {};
  const auto entries = list->elements();
  if (!entries) {
    fields.refuse(entries.error());
    return {};
  }
  std::vector<LayerMemory> memories(std::min(config.num_layers, kMostLayers), LayerMemory::state);
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
    refuse_key(fields, "block_ffn_dim_multiplier", fmt::format("{} and block_multiple_of {} make no width", factor, multiple),
               "use the config that belongs to the weights");
    return width;
  }
  const std::uint64_t usual = std::uint64_t{2} * width / 3;
  const auto scaled = static_cast<std::uint64_t>(factor * static_cast<double>(usual));
  return static_cast<std::uint32_t>((scaled + multiple - 1) / multiple * multiple);
}

void read_lfm2(const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  config.tensor_names = TensorNames::lfm2;
  config.qk_norm = QkNorm::per_head;
  config.norm_epsilon = fields.get_or<float>("norm_eps", 1e-5F);
  config.rope_theta = fields.get_or<double>("theta", config.rope_theta);
  config.tied_embeddings = fields.get_or<bool>("tie_embedding", config.tied_embeddings);
  if (config.architecture == "lfm2")
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

// What the three families with Mamba-2 layers have in common.
void read_mamba(const JsonRef& json, JsonFields& fields, ModelConfig& config) {
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
  const bool has_width = config.architecture == "falcon_h1";
  const auto width = has_width ? fields.get_optional<std::uint32_t>("mamba_d_ssm") : std::nullopt;
  const double expanded = fields.get_or<double>("mamba_expand", 2.0) * config.hidden_size;
  const std::uint32_t inner = width ? *width : expanded >= 0.0 && expanded < 4e9 ? static_cast<std::uint32_t>(expanded) : 0;
  const auto head_dim = json.find("mamba_d_head");
  const bool is_auto = !head_dim || head_dim->as<std::string_view>().value_or("") == "auto";
  state.head_dim = is_auto ? inner / std::max(state.heads, 1U) : fields.get_or<std::uint32_t>("mamba_d_head", 0);
  if (std::uint64_t{state.heads} * state.head_dim != inner) {
    fields.refuse({ErrorCode::corrupt, "config.json: mamba_n_heads",
                   fmt::format("{} heads of {} are not {} values", state.heads, state.head_dim, inner),
                   "use the config that belongs to the weights"});
  }
  if (const auto limit = json.find("time_step_limit"); limit && limit->elements()) {
    const auto bounds = limit->elements();
    // JSON has no infinity: the usual limits are 0 and one that is written in another way, or none.
    if (!bounds->empty() && bounds->front().as<double>().value_or(0.0) > 0.0)
      refuse_key(fields, "time_step_limit", "steps within bounds are not implemented", "use a model without them");
  }
}

// Its experts, if it has any, and the part that all tokens go through, which is all of the feed-forward part if not.
void read_granite_hybrid(const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  config.tensor_names = TensorNames::granite_hybrid;
  read_mamba(json, fields, config);
  config.state.has_norm = true;
  config.layer_memories = read_layer_types(json, "layer_types", "mamba", fields, config);
  if (config.layer_memories.empty()) config.layer_memories.assign(std::min(config.num_layers, kMostLayers), LayerMemory::state);
  if (fields.get_optional<std::string>("position_embedding_type").value_or("nope") != "rope") config.still_layer_interval = 1;
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
  config.weighs_shared_expert = false;
  config.normalize_experts = true;
  config.expert_tensors = ExpertTensors::stacked_gate_up;
}

void read_bamba(const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  config.tensor_names = TensorNames::bamba;
  read_mamba(json, fields, config);
  config.state.has_norm = true;
  config.layer_memories = read_attending(json, "attn_layer_indices", fields, config);
  if (config.layer_memories.empty()) config.layer_memories.assign(std::min(config.num_layers, kMostLayers), LayerMemory::state);
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
    fields.refuse({ErrorCode::corrupt, list->path(), fmt::format("{} factors, and there are {} parts", entries->size(), count),
                   "use the config that belongs to the weights"});
  for (std::size_t i = 0; i < std::min(count, entries->size()); ++i) {
    const auto scale = (*entries)[i].as<float>();
    if (!scale) fields.refuse(scale.error());
    scales[i] = scale.value_or(1.0F);
  }
  return scales;
}

// Every layer attends and has a state. What scales the input of attention scales queries and keys, hence the scores, and values.
void read_falcon_h1(const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  config.tensor_names = TensorNames::bamba;
  config.layer_memories.assign(std::min(config.num_layers, kMostLayers), LayerMemory::both);
  read_mamba(json, fields, config);
  StateShape& state = config.state;
  state.output_bias = fields.get_or<bool>("projectors_bias", false);
  state.has_norm = fields.get_or<bool>("mamba_rms_norm", false);
  state.norm_groups = state.groups;
  state.gates_normed = fields.get_or<bool>("mamba_norm_before_gate", true);
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
    if (fields.get_or<bool>(key, false)) refuse_key(fields, key, "is not implemented with this architecture", "use a model without it");
}

void read_qwen3_next(const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  config.tensor_names = TensorNames::qwen3_next;
  config.norm_offset = 1.0F;  // of all norms but that behind the rule
  config.gated_attention = true;
  config.layer_memories = read_layer_types(json, "layer_types", "linear_attention", fields, config);
  const auto interval = fields.get_or<std::uint32_t>("full_attention_interval", 4);
  for (std::uint32_t i = 0; !json.find("layer_types") && i < std::min(config.num_layers, kMostLayers); ++i)
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
    refuse_key(fields, "attention_bias", "is not implemented with this architecture", "use a model without it");
}

// One whose layers all attend is like any other.
void drop_unused(ModelConfig& config) {
  if (std::ranges::any_of(config.layer_memories, [](LayerMemory memory) { return memory != LayerMemory::attention; })) return;
  config.layer_memories.clear();
  config.state = {};
}

}  // namespace

bool may_have_states(std::string_view architecture) {
  for (const std::string_view name : {"lfm2", "lfm2_moe", "lfm2moe", "granitemoehybrid", "granitehybrid", "nemotron_h", "nemotron_h_moe",
                                      "bamba", "falcon_h1", "falcon-h1", "qwen3_next", "qwen3next"})
    if (architecture == name) return true;
  return false;
}

void read_states(const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  if (config.architecture.starts_with("lfm2")) read_lfm2(json, fields, config);
  if (config.architecture == "granitemoehybrid") read_granite_hybrid(json, fields, config);
  if (has_blocks(config.architecture)) read_blocks(json, fields, config);
  if (config.architecture == "bamba") read_bamba(json, fields, config);
  if (config.architecture == "falcon_h1") read_falcon_h1(json, fields, config);
  if (config.architecture == "qwen3_next") read_qwen3_next(json, fields, config);
  drop_unused(config);
}

namespace {

// The converter has added the 1 that norms lack. Layers that attend are those with queries; newer files have what goes through the
// convolution apart from the gate, in the convolution's order.
void read_qwen3_next(const GgufFile& file, ConfigFields<GgufFile>& fields, ModelConfig& config) {
  config.tensor_names = TensorNames::qwen3_next;
  config.qk_norm = QkNorm::per_head;
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
  config.layer_memories.assign(std::min(config.num_layers, kMostLayers), LayerMemory::state);
  for (std::uint32_t i = 0; i < config.layer_memories.size(); ++i)
    if (file.find_tensor(fmt::format("blk.{}.attn_q.weight", i)) != nullptr) config.layer_memories[i] = LayerMemory::attention;
}

}  // namespace

void read_states(const GgufFile& file, ConfigFields<GgufFile>& fields, ModelConfig& config) {
  if (config.architecture == "qwen3next") {
    read_qwen3_next(file, fields, config);
    return drop_unused(config);
  }
  const auto has = [&](std::string_view part) {
    return std::ranges::any_of(file.tensors(), [&](const GgufTensor& tensor) { return tensor.name.ends_with(part); });
  };
  StateShape& state = config.state;
  if (config.architecture.starts_with("lfm2")) {
    config.tensor_names = TensorNames::lfm2;
    config.qk_norm = QkNorm::per_head;
    state.kind = StateKind::short_conv;
    state.conv_taps = fields.need<std::uint32_t>("shortconv.l_cache");
    state.conv_bias = has("shortconv.conv.bias");
    state.input_bias = has("shortconv.in_proj.bias");
    state.output_bias = has("shortconv.out_proj.bias");
    return drop_unused(config);
  }
  if (has_blocks(config.architecture)) read_blocks(file, fields, config);
  const bool is_falcon = config.architecture == "falcon-h1";
  if (!is_falcon && !has_blocks(config.architecture)) config.tensor_names = TensorNames::granite_hybrid;
  if (is_falcon) config.layer_memories.assign(std::min(config.num_layers, kMostLayers), LayerMemory::both);
  const auto inner = fields.need<std::uint32_t>("ssm.inner_size");
  state.kind = StateKind::mamba2;
  state.conv_taps = fields.need<std::uint32_t>("ssm.conv_kernel");
  state.conv_bias = has("ssm_conv1d.bias");
  state.input_bias = has("ssm_in.bias");
  state.output_bias = has("ssm_out.bias");
  state.heads = fields.need<std::uint32_t>("ssm.time_step_rank");  // llama.cpp's name for them
  state.head_dim = inner / std::max(state.heads, 1U);
  state.groups = fields.need<std::uint32_t>("ssm.group_count");
  state.size = fields.need<std::uint32_t>("ssm.state_size");
  state.has_norm = has("ssm_norm.weight");
  state.norm_groups = state.groups;
  if (state.heads * std::uint64_t{state.head_dim} != inner) {
    fields.refuse({ErrorCode::corrupt, fields.field("ssm.inner_size"), fmt::format("{} heads cannot share {} values", state.heads, inner),
                   "download or convert the file again"});
  }
  if (!is_falcon && config.rotary_dim != config.head_dim && config.layer_rotates(0)) {
    fields.refuse({ErrorCode::unsupported, fields.field("rope.dimension_count"),
                   fmt::format("{} of {} dimensions rotate, in an order that is not known here", config.rotary_dim, config.head_dim),
                   "use the Hugging Face folder of the model"});
  }
  config.weighs_shared_expert = false;
  // A part that all tokens go through has a width of its own, and no key.
  const GgufTensor* gate = file.find_tensor("blk.0.ffn_gate.weight");
  if (config.num_experts == 0 && gate != nullptr)
    config.intermediate_size = static_cast<std::uint32_t>(std::min<std::uint64_t>(gate->rows(), ~0U));
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
