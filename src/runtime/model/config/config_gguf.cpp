// Reads a ModelConfig from a GGUF header. Keys are prefixed with the architecture; biases, head norms and tied embeddings are visible only
// in the tensor table. Called once per model, when its headers are read. The file is not trusted: a key that is missing or of another type
// is an error that names the key (ConfigFields). An unknown value that would change outputs is an error, too.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ranges>
#include <string>

#include "format/quote.h"
#include "runtime/model/config/config_fields.h"
#include "runtime/model/config/config_layers.h"
#include "runtime/model/config/config_states.h"
#include "runtime/model/config/families.h"
#include "runtime/model/config/model_config.h"

namespace quire {
namespace {

using Fields = ConfigFields<GgufFile>;

void read_shape(const GgufFile& file, const ModelFamily& family, Fields& fields, ModelConfig& config) {
  config.num_layers = fields.need<std::uint32_t>("block_count");
  config.hidden_size = fields.need<std::uint32_t>("embedding_length");
  // Nemotron-H files have a list of widths, one per block, which read_blocks() reads.
  config.intermediate_size = family.has_blocks ? 1 : fields.need<std::uint32_t>("feed_forward_length");
  config.num_heads = fields.need<std::uint32_t>("attention.head_count");
  read_kv_heads(file, family.gguf.read_states != nullptr, fields, config);
  config.context_length = fields.need<std::uint32_t>("context_length");
  config.norm_epsilon = fields.need<float>("attention.layer_norm_rms_epsilon");
  const std::uint32_t even_share = config.num_heads == 0 ? 0 : config.hidden_size / config.num_heads;
  config.head_dim = fields.get_or<std::uint32_t>("attention.key_length", even_share);
  const auto value_length = fields.get_or<std::uint32_t>("attention.value_length", config.head_dim);
  if (value_length != config.head_dim && !family.has_latents) {
    fields.refuse({ErrorCode::unsupported, fields.field("attention.value_length"),
                   fmt::format("{} differs from the key length {}", value_length, config.head_dim),
                   "use a model with equal key and value lengths"});
  }
  const float even_scale = 1.0F / std::sqrt(static_cast<float>(std::max(config.head_dim, 1U)));
  config.attention_scale = fields.get_or<float>("attention.scale", even_scale);
  if (config.attention_scale == 0.0F) config.attention_scale = even_scale;
}

void read_rope(const ModelFamily& family, Fields& fields, ModelConfig& config) {
  config.rope_theta = fields.get_or<double>("rope.freq_base", 10000.0);
  config.rotary_dim = fields.get_or<std::uint32_t>("rope.dimension_count", config.head_dim);
  const double old_factor = fields.get_or<double>("rope.scale_linear", 1.0);
  const auto type = fields.get_or<std::string>("rope.scaling.type", old_factor != 1.0 ? "linear" : "none");
  if (type == "linear") {
    config.rope_scaling = RopeScaling::linear;
    config.rope_factor = fields.get_or<double>("rope.scaling.factor", old_factor);
  } else if (type == "yarn") {
    config.rope_scaling = RopeScaling::yarn;
    config.rope_factor = fields.need<double>("rope.scaling.factor");
    config.rope_original_context = fields.get_or<std::uint32_t>("rope.scaling.original_context_length", config.context_length);
    config.rope_beta_fast = fields.get_or<double>("rope.scaling.yarn_beta_fast", 32.0);
    config.rope_beta_slow = fields.get_or<double>("rope.scaling.yarn_beta_slow", 1.0);
    config.rope_truncates = family.gguf.rope_truncates;
    const double grown = 1.0 + 0.1 * std::log(std::max(config.rope_factor, 1.0));
    const double usual = family.gguf.whole_attention_factor ? grown : 1.0;
    config.rope_attention_factor = static_cast<float>(fields.get_or<double>("rope.scaling.attn_factor", usual) * (grown / usual));
    if (!family.has_latents && fields.get_optional<double>("rope.scaling.yarn_log_multiplier"))
      fields.refuse(
          {ErrorCode::unsupported, fields.field("rope.scaling.yarn_log_multiplier"), "is not implemented", "use a model without it"});
  } else if (type == "longrope") {
    config.rope_scaling = RopeScaling::longrope;
  } else if (type != "none") {
    fields.refuse({ErrorCode::unsupported, fields.field("rope.scaling.type"), fmt::format("{} is not implemented", in_quotes(type)),
                   "use a model with linear, Llama 3, yarn, longrope or no RoPE scaling"});
  }
}

// Reads the sections of Qwen2-VL and Qwen2.5-VL: numbers of pairs that rotate by the time, the row and the column of an image token. The
// converter adds a fourth section of 0.
void read_sections(const GgufFile& file, Fields& fields, ModelConfig& config) {
  const std::string key = fields.field("rope.dimension_sections");
  const auto sections = file.get_array<std::uint32_t>(key);
  if (!sections) return fields.refuse(sections.error());
  if (sections->size() < config.rope_sections.size() ||
      std::ranges::any_of(*sections | std::views::drop(3), [](auto size) { return size > 0; }))
    return fields.refuse({ErrorCode::unsupported, key, "does not have three sections", "use a Qwen2-VL or Qwen2.5-VL model"});
  std::copy_n(sections->begin(), config.rope_sections.size(), config.rope_sections.begin());
}

// Reads LongRoPE. Phi-3 files have the factors but no scaling type.
void read_longrope(const GgufFile& file, Fields& fields, ModelConfig& config) {
  if (file.find_tensor("rope_factors_long.weight") != nullptr) config.rope_scaling = RopeScaling::longrope;
  if (config.rope_scaling != RopeScaling::longrope) return;
  config.rope_original_context = fields.need<std::uint32_t>("rope.scaling.original_context_length");
  config.rope_attention_factor = fields.get_or<float>("rope.scaling.attn_factor", 1.0F);
}

// Reads the router. Values of expert_gating_func: 1 is softmax, 2 is sigmoid.
void read_router(const ExpertTraits& traits, Fields& fields, ModelConfig& config) {
  const auto scoring = fields.get_or<std::uint32_t>("expert_gating_func", traits.is_sigmoid ? 2 : 1);
  if (scoring > 2)
    fields.refuse({ErrorCode::unsupported, fields.field("expert_gating_func"), fmt::format("{} is not implemented", scoring),
                   "use a model with another router"});
  config.expert_scoring = scoring == 2 ? ExpertScoring::sigmoid : ExpertScoring::softmax;
  config.expert_choice_bias = scoring == 2;
  config.normalize_experts = fields.get_or<bool>("expert_weights_norm", false);
  const auto scale = fields.get_or<float>("expert_weights_scale", 1.0F);
  if (scale != 0.0F) config.expert_scale = scale;
  if (const auto groups = fields.get_or<std::uint32_t>("expert_group_count", 0); groups > 1) {
    config.num_expert_groups = groups;
    config.groups_per_token = fields.need<std::uint32_t>("expert_group_used_count");
  }
}

// Reads the experts. Takes expert sizes from the tensors, because files store the sizes under different keys or not at all.
void read_experts(const GgufFile& file, const ModelFamily& family, Fields& fields, ModelConfig& config) {
  const ExpertTraits& traits = family.experts;
  config.num_experts = fields.get_or<std::uint32_t>("expert_count", 0);
  if (config.num_experts == 0 && (traits.read_hf == nullptr || family.gguf.may_lack_experts)) return;
  config.experts_per_token = fields.need<std::uint32_t>("expert_used_count");
  config.expert_tensors = ExpertTensors::stacked;
  const std::size_t first = static_cast<std::size_t>(std::ranges::find(config.dense_layers, false) - config.dense_layers.begin());
  const std::string prefix = fmt::format("blk.{}.", first);
  const GgufTensor* gates = file.find_tensor(prefix + "ffn_gate_exps.weight");
  if (gates == nullptr || config.num_experts == 0) {
    fields.refuse({ErrorCode::unsupported, prefix + "ffn_gate_exps.weight",
                   fmt::format("the {} experts of a layer are not in one tensor", config.num_experts),
                   "convert the model again with a newer llama.cpp"});
    return;
  }
  config.expert_size = static_cast<std::uint32_t>(std::min<std::uint64_t>(gates->rows() / config.num_experts, ~0U));
  if (const GgufTensor* shared = file.find_tensor(prefix + "ffn_gate_shexp.weight"))
    config.shared_expert_size = static_cast<std::uint32_t>(std::min<std::uint64_t>(shared->rows(), ~0U));
  config.has_shared_expert_gate = traits.has_shared_gate;
  if (traits.has_router_keys) return read_router(traits, fields, config);
  config.expert_choice_bias = traits.sum_floor > 0.0F && file.find_tensor(prefix + "exp_probs_b.bias") != nullptr;
  config.expert_scoring = traits.is_sigmoid ? ExpertScoring::sigmoid : ExpertScoring::softmax;
  config.expert_sum_floor = traits.sum_floor;
  config.normalize_experts = family.gguf.normalizes_experts;
  config.expert_bias = traits.has_bias;
  const bool scales = fields.get_optional<double>("expert_weights_scale").value_or(0.0) > 1.0;
  if (scales || fields.get_or<std::uint32_t>("expert_group_count", 0) > 1)
    fields.refuse({ErrorCode::unsupported, fields.field(scales ? "expert_weights_scale" : "expert_group_count"), "is not implemented",
                   "use a mixture-of-experts model without it"});
}

// Reads the number of dense layers, which come first, and of draft layers, which come last. `num_layers` includes the draft layers until
// they are subtracted here.
void read_dense_layers(Fields& fields, ModelConfig& config) {
  config.num_draft_layers = fields.get_or<std::uint32_t>("nextn_predict_layers", 0);
  config.num_layers -= std::min(config.num_layers, config.num_draft_layers);
  if (!config.layer_memories.empty()) config.layer_memories.resize(config.num_layers);
  config.dense_layers.assign(std::min<std::uint32_t>(config.num_layers, kMaxLayers), false);
  const auto dense = fields.get_or<std::uint32_t>("leading_dense_block_count", 0);
  std::fill_n(config.dense_layers.begin(), std::min<std::size_t>(dense, config.dense_layers.size()), true);
  const auto step = fields.get_or<std::uint32_t>("interleave_moe_layer_step", 1);
  for (std::uint32_t i = 0; step > 1 && i < config.dense_layers.size(); ++i)
    if ((i + 1) % step != 0) config.dense_layers[i] = true;
}

void read_switches(const GgufFile& file, const ModelFamily& family, ModelConfig& config) {
  const auto has = [&](std::string_view name) { return file.find_tensor(name) != nullptr; };
  config.qkv_bias = has("blk.0.attn_q.bias");
  config.output_bias = has("blk.0.attn_output.bias");
  config.mlp_bias = has("blk.0.ffn_up.bias");
  config.activation = family.activation;
  if (has("blk.0.attn_q_norm.weight")) config.qk_norm = QkNorm::per_head;
  if (family.qk_norm == QkNorm::whole || family.gguf.always_qk_norm) config.qk_norm = family.qk_norm;
  config.fused_qkv = has("blk.0.attn_qkv.weight");
  config.fused_gate_up = family.fused_gate_up && !has("blk.0.ffn_gate.weight");
  config.tied_embeddings = !has("output.weight");
  const GgufTensor* embeddings = file.find_tensor("token_embd.weight");
  config.vocab_size = embeddings == nullptr ? 0 : static_cast<std::uint32_t>(std::min<std::uint64_t>(embeddings->rows(), ~0U));
}

}  // namespace

Result<ModelConfig> config_from_gguf(const GgufFile& file) {
  auto architecture = file.get<std::string>("general.architecture");
  if (!architecture) return std::unexpected(std::move(architecture.error()));
  const ModelFamily* const family = find_gguf_family(*architecture);
  if (family == nullptr)
    return fail(ErrorCode::unsupported, "general.architecture", fmt::format("{} is not implemented", in_quotes(*architecture)),
                list_families(gguf_families()));
  const GgufTraits& gguf = family->gguf;
  ModelConfig config;
  config.architecture = *std::move(architecture);
  config.rope_style = gguf.rope_style;
  config.tensor_names = gguf.tensor_names;
  config.nope_layer_interval = family->nope_interval;
  config.adapter_problem = gguf.adapter_problem;
  Fields fields(file, config.architecture + ".");
  read_shape(file, *family, fields, config);
  family->set_norms(config);
  read_switches(file, *family, config);
  read_rope(*family, fields, config);
  read_longrope(file, fields, config);
  if (family->has_rope_sections) read_sections(file, fields, config);
  if (gguf.read != nullptr) gguf.read(file, fields, config);
  if (gguf.lists_dense_layers) read_dense_layers(fields, config);
  if (!family->has_blocks) read_experts(file, *family, fields, config);  // read_blocks() reads them
  if (gguf.read_states == nullptr) read_windows(*family, file, fields, config);
  if (family->rotates_windows_only) set_nope_layers(config);
  if (family->windows_ignore_scaling && !config.sliding_windows.empty()) config.window_rope_theta = config.rope_theta;
  if (const auto& error = fields.error()) return std::unexpected(*error);
  if (file.find_tensor("token_embd.weight") == nullptr)
    return fail(ErrorCode::corrupt, "token_embd.weight", "the file does not contain this tensor",
                "use a file that contains weights, not only a vocabulary");
  if (gguf.read_states != nullptr) {
    gguf.read_states(file, fields, config);
    drop_unused_states(config);
    if (const auto& error = fields.error()) return std::unexpected(*error);
  }
  if (auto error = config.check()) return std::unexpected(std::move(*error));
  return config;
}

}  // namespace quire
