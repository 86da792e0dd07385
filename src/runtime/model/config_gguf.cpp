// GGUF: keys are prefixed with the architecture; biases, head norms and tied embeddings show in the tensor table alone.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "format/quote.h"
#include "runtime/model/config_fields.h"
#include "runtime/model/model_config.h"

namespace quire {
namespace {

using Fields = ConfigFields<GgufFile>;

void read_shape(Fields& fields, ModelConfig& config) {
  config.num_layers = fields.need<std::uint32_t>("block_count");
  config.hidden_size = fields.need<std::uint32_t>("embedding_length");
  config.intermediate_size = fields.need<std::uint32_t>("feed_forward_length");
  config.num_heads = fields.need<std::uint32_t>("attention.head_count");
  config.num_kv_heads = fields.get_or<std::uint32_t>("attention.head_count_kv", config.num_heads);
  config.context_length = fields.need<std::uint32_t>("context_length");
  config.norm_epsilon = fields.need<float>("attention.layer_norm_rms_epsilon");
  const std::uint32_t even_share = config.num_heads == 0 ? 0 : config.hidden_size / config.num_heads;
  config.head_dim = fields.get_or<std::uint32_t>("attention.key_length", even_share);
  const auto value_length = fields.get_or<std::uint32_t>("attention.value_length", config.head_dim);
  if (value_length != config.head_dim) {
    fields.refuse({ErrorCode::unsupported, fields.field("attention.value_length"),
                   fmt::format("{} differs from the keys' {}", value_length, config.head_dim), "use a model with equal sizes"});
  }
  const float even_scale = 1.0F / std::sqrt(static_cast<float>(std::max(config.head_dim, 1U)));
  config.attention_scale = fields.get_or<float>("attention.scale", even_scale);
  if (config.attention_scale == 0.0F) config.attention_scale = even_scale;
  if (const auto window = fields.get_or<std::uint32_t>("attention.sliding_window", 0); window != 0)
    config.context_length = std::min(config.context_length, window);
}

void read_rope(Fields& fields, ModelConfig& config) {
  config.rope_theta = fields.get_or<double>("rope.freq_base", 10000.0);
  config.rotary_dim = fields.get_or<std::uint32_t>("rope.dimension_count", config.head_dim);
  // Permuted at conversion in the llama family only.
  config.rope_style = config.architecture == "llama" ? RopeStyle::interleaved : RopeStyle::half_split;
  const double old_factor = fields.get_or<double>("rope.scale_linear", 1.0);
  const auto type = fields.get_or<std::string>("rope.scaling.type", old_factor != 1.0 ? "linear" : "none");
  if (type == "linear") {
    config.rope_scaling = RopeScaling::linear;
    config.rope_factor = fields.get_or<double>("rope.scaling.factor", old_factor);
  } else if (type != "none") {
    fields.refuse({ErrorCode::unsupported, fields.field("rope.scaling.type"), fmt::format("{} is not implemented", in_quotes(type)),
                   "use a model with linear or Llama 3 scaling, or none"});
  }
}

void read_switches(const GgufFile& file, ModelConfig& config) {
  const auto has = [&](std::string_view name) { return file.find_tensor(name) != nullptr; };
  config.qkv_bias = has("blk.0.attn_q.bias");
  config.output_bias = has("blk.0.attn_output.bias");
  config.mlp_bias = has("blk.0.ffn_up.bias");
  config.qk_norm = has("blk.0.attn_q_norm.weight");
  config.tied_embeddings = !has("output.weight");
  const GgufTensor* embeddings = file.find_tensor("token_embd.weight");
  config.vocab_size = embeddings == nullptr ? 0 : static_cast<std::uint32_t>(std::min<std::uint64_t>(embeddings->rows(), ~0U));
}

}  // namespace

Result<ModelConfig> config_from_gguf(const GgufFile& file) {
  ModelConfig config;
  auto architecture = file.get<std::string>("general.architecture");
  if (!architecture) return std::unexpected(std::move(architecture.error()));
  config.architecture = *architecture;
  if (config.architecture != "llama" && config.architecture != "qwen2" && config.architecture != "qwen3") {
    return fail(ErrorCode::unsupported, "general.architecture", fmt::format("{} is not implemented", in_quotes(*architecture)),
                "use a dense model of the families llama (with SmolLM2 and Mistral), qwen2 or qwen3");
  }
  Fields fields(file, config.architecture + ".");
  if (const auto experts = fields.get_or<std::uint32_t>("expert_count", 0); experts > 0)
    return fail(ErrorCode::unsupported, fields.field("expert_count"), fmt::format("{} experts", experts), "use a dense model");
  read_shape(fields, config);
  read_rope(fields, config);
  if (const auto& error = fields.error()) return std::unexpected(*error);
  if (file.find_tensor("token_embd.weight") == nullptr)
    return fail(ErrorCode::corrupt, "token_embd.weight", "the file has no such tensor", "use a file with weights, not a vocabulary alone");
  read_switches(file, config);
  if (auto error = config.check()) return std::unexpected(std::move(*error));
  return config;
}

}  // namespace quire
