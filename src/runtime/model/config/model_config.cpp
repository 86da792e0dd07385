// Implements ModelConfig: derived sizes, rotation frequencies and checks. check() is called on a file's values before any computation with
// them; its limits prevent overflows in later arithmetic. Pure functions.
#include "runtime/model/config/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "runtime/kernel/attention.h"
#include "runtime/kernel/state.h"

namespace quire {
namespace {

// Returns a frequency with Llama 3.1's scaling: long wavelengths are multiplied by the factor, short wavelengths are unchanged, and
// wavelengths between them are interpolated. Follows transformers' _compute_llama3_parameters.
double llama3_frequency(const ModelConfig& config, double frequency) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const double low_wavelength = config.rope_original_context / config.rope_low_freq_factor;
  const double high_wavelength = config.rope_original_context / config.rope_high_freq_factor;
  if (wavelength < high_wavelength) return frequency;
  if (wavelength > low_wavelength) return frequency / config.rope_factor;
  const double smooth = (config.rope_original_context / wavelength - config.rope_low_freq_factor) /
                        (config.rope_high_freq_factor - config.rope_low_freq_factor);
  return (1.0 - smooth) * frequency / config.rope_factor + smooth * frequency;
}

// Returns the frequencies with YaRN (Peng et al., 2023). Pairs with many rotations in the original context keep their frequency. The
// frequencies of pairs with few rotations are divided by the factor. Pairs between them are interpolated linearly. Follows transformers'
// _compute_yarn_parameters.
std::vector<float> yarn_frequencies(const ModelConfig& config) {
  const double dim = config.rotary_dim;
  const auto pair_of = [&](double turns) {
    return dim * std::log(config.rope_original_context / (turns * 2.0 * std::numbers::pi)) / (2.0 * std::log(config.rope_theta));
  };
  const double fast = pair_of(config.rope_beta_fast);
  const double slow = pair_of(config.rope_beta_slow);
  const double low = std::max(config.rope_truncates ? std::floor(fast) : fast, 0.0);
  double high = std::min(config.rope_truncates ? std::ceil(slow) : slow, dim - 1.0);
  if (low == high) high += 0.001;
  std::vector<float> frequencies(config.rotary_dim / 2);
  for (std::uint32_t i = 0; i < frequencies.size(); ++i) {
    const double frequency = std::pow(config.rope_theta, -2.0 * i / dim);
    const double stretched = std::clamp((i - low) / (high - low), 0.0, 1.0);
    frequencies[i] = static_cast<float>(frequency / config.rope_factor * stretched + frequency * (1.0 - stretched));
  }
  return frequencies;
}

double scaled_frequency(const ModelConfig& config, double frequency) {
  switch (config.rope_scaling) {
    case RopeScaling::none:
    case RopeScaling::longrope:  // the decoder divides by its factors
    case RopeScaling::yarn:      // yarn_frequencies() computes all pairs together
      return frequency;
    case RopeScaling::linear:
      return frequency / config.rope_factor;
    case RopeScaling::llama3:
      return llama3_frequency(config, frequency);
  }
  return frequency;
}

bool positive(double value) {
  return std::isfinite(value) && value > 0.0;
}

std::optional<Error> check_longrope(const ModelConfig& c) {
  if (!positive(c.rope_original_context))
    return wrong_value("original_max_position_embeddings", fmt::format("is {}, but must be above 0", c.rope_original_context));
  if (!positive(c.rope_attention_factor))
    return wrong_value("rope_scaling.attention_factor", fmt::format("is {}, but must be above 0", c.rope_attention_factor));
  if (c.rope_short_factors.empty() && c.rope_long_factors.empty()) return std::nullopt;
  for (const auto& [name, factors] : {std::pair("short_factor", &c.rope_short_factors), {"long_factor", &c.rope_long_factors}}) {
    if (factors->size() != c.rotary_dim / 2) {
      return wrong_value(fmt::format("rope_scaling.{}", name),
                         fmt::format("has {} factors, but the model has {} pairs of rotary dimensions", factors->size(), c.rotary_dim / 2));
    }
    for (const float factor : *factors)
      if (!positive(factor)) return wrong_value(fmt::format("rope_scaling.{}", name), fmt::format("is {}, but must be above 0", factor));
  }
  return std::nullopt;
}

std::optional<Error> check_yarn(const ModelConfig& c) {
  for (const auto& [name, value] : {std::pair("original_max_position_embeddings", c.rope_original_context),
                                    {"beta_slow", c.rope_beta_slow},
                                    {"attention_factor", static_cast<double>(c.rope_attention_factor)}})
    if (!positive(value)) return wrong_value(fmt::format("rope_scaling.{}", name), fmt::format("is {}, but must be above 0", value));
  if (!(c.rope_beta_fast >= c.rope_beta_slow) || !std::isfinite(c.rope_beta_fast) || c.rope_theta <= 1.0) {
    return wrong_value("rope_scaling", fmt::format("beta_fast {}, beta_slow {} and rope_theta {} are inconsistent", c.rope_beta_fast,
                                                   c.rope_beta_slow, c.rope_theta));
  }
  return std::nullopt;
}

std::optional<Error> check_scales(const ModelConfig& c) {
  for (const auto& [name, value] : {std::pair("attention_scale", c.attention_scale),
                                    {"embedding_scale", c.embedding_scale},
                                    {"residual_scale", c.residual_scale},
                                    {"attention_output_scale", c.attention_output_scale},
                                    {"logit_scale", c.logit_divisor}}) {
    if (!positive(value)) return wrong_value(name, fmt::format("is {}, but must be above 0", value));
  }
  if (c.activation == GateActivation::swiglu_limited && !positive(c.swiglu_limit))
    return wrong_value("swiglu_limit", fmt::format("is {}, but must be above 0", c.swiglu_limit));
  for (const auto& [name, cap] : {std::pair("attn_logit_softcapping", c.attention_soft_cap), {"final_logit_softcapping", c.logit_soft_cap}})
    if (cap != 0.0F && !positive(cap)) return wrong_value(name, fmt::format("{} is not a valid cap (0: no cap; otherwise above 0)", cap));
  return std::nullopt;
}

std::optional<Error> check_sections(const ModelConfig& c) {
  if (!c.has_rope_sections()) return std::nullopt;
  std::uint64_t pairs = 0;
  for (const std::uint32_t section : c.rope_sections) pairs += section;
  if (pairs == c.rotary_dim / 2) return std::nullopt;
  return wrong_value("rope_scaling.mrope_section",
                     fmt::format("has sections for {} pairs of dimensions, but the model has {}", pairs, c.rotary_dim / 2));
}

std::optional<Error> check_rope(const ModelConfig& c) {
  if (c.window_rope_theta != 0.0 && !positive(c.window_rope_theta))
    return wrong_value("rope_local_base_freq", fmt::format("is {}, but must be above 0", c.window_rope_theta));
  if (!positive(c.rope_theta)) return wrong_value("rope_theta", fmt::format("is {}, but must be above 0", c.rope_theta));
  if (c.rotary_dim == 0 || c.rotary_dim % 2 != 0 || c.rotary_dim > c.head_dim)
    return wrong_value("rope.dimension_count", fmt::format("RoPE cannot apply to {} of {} dimensions", c.rotary_dim, c.head_dim));
  if (auto error = check_sections(c)) return error;
  if (!positive(c.rope_factor)) return wrong_value("rope_scaling.factor", fmt::format("is {}, but must be above 0", c.rope_factor));
  if (c.rope_scaling == RopeScaling::longrope) return check_longrope(c);
  if (c.rope_scaling == RopeScaling::yarn) return check_yarn(c);
  if (c.rope_scaling != RopeScaling::llama3) return std::nullopt;
  if (!positive(c.rope_original_context) || !positive(c.rope_low_freq_factor) || !(c.rope_high_freq_factor > c.rope_low_freq_factor)) {
    return wrong_value("rope_scaling",
                       fmt::format("low_freq_factor {}, high_freq_factor {} and original_max_position_embeddings {} are inconsistent",
                                   c.rope_low_freq_factor, c.rope_high_freq_factor, c.rope_original_context));
  }
  return std::nullopt;
}

std::optional<Error> check_latents(const ModelConfig& c) {
  constexpr std::uint32_t kMaxDim = 1U << 12, kMaxRank = 1U << 16;
  if (c.latent.kv_rank == 0) return std::nullopt;
  const std::tuple<const char*, std::uint32_t, std::uint32_t, std::uint32_t> ranges[] = {{"kv_lora_rank", c.latent.kv_rank, 1, kMaxHeadDim},
                                                                                         {"q_lora_rank", c.latent.q_rank, 0, kMaxRank},
                                                                                         {"qk_nope_head_dim", c.latent.key_dim, 1, kMaxDim},
                                                                                         {"v_head_dim", c.latent.value_dim, 1, kMaxDim}};
  for (const auto& [name, value, least, most] : ranges)
    if (value < least || value > most) return wrong_value(name, fmt::format("{} is out of range ({} to {})", value, least, most));
  if (c.qkv_bias || c.output_bias || !c.sliding_windows.empty())
    return Error{ErrorCode::unsupported, "attention_bias", "biases and sliding windows in latent attention are not implemented",
                 "use a model without them"};
  return std::nullopt;
}

std::optional<Error> check_expert_groups(const ModelConfig& c) {
  if (c.num_expert_groups == 0) return std::nullopt;
  const std::uint32_t groups = c.num_expert_groups;
  if (groups > kMaxExpertGroups)
    return Error{ErrorCode::unsupported, "n_group", fmt::format("is {}, more than the maximum of {}", groups, kMaxExpertGroups),
                 "use a model with fewer groups of experts"};
  if (groups > c.num_experts || c.num_experts % groups != 0)
    return wrong_value("n_group", fmt::format("{} experts cannot be divided into {} groups", c.num_experts, groups));
  if (c.groups_per_token == 0 || c.groups_per_token > groups ||
      c.experts_per_token > std::uint64_t{c.groups_per_token} * (c.num_experts / groups))
    return wrong_value("topk_group", fmt::format("{} of {} groups do not contain enough experts for the {} experts of a token",
                                                 c.groups_per_token, groups, c.experts_per_token));
  return std::nullopt;
}

std::optional<Error> check_experts(const ModelConfig& c) {
  constexpr std::uint32_t kMaxExperts = 4096, kMaxPerToken = 64, kMaxSize = 1U << 20;
  if (c.num_experts == 0) return std::nullopt;
  const std::tuple<const char*, std::uint32_t, std::uint32_t> ranges[] = {
      {"num_experts", c.num_experts, kMaxExperts},
      {"num_experts_per_tok", c.experts_per_token, std::min(c.num_experts, kMaxPerToken)},
      {"moe_intermediate_size", c.expert_size, kMaxSize}};
  for (const auto& [name, value, limit] : ranges)
    if (value == 0 || value > limit) return wrong_value(name, fmt::format("{} is out of range (1 to {})", value, limit));
  if (c.shared_expert_size > kMaxSize)
    return wrong_value("shared_expert_intermediate_size", fmt::format("{} is out of range (0 to {})", c.shared_expert_size, kMaxSize));
  if (!positive(c.expert_scale)) return wrong_value("routed_scaling_factor", fmt::format("is {}, but must be above 0", c.expert_scale));
  return check_expert_groups(c);
}

std::optional<Error> check_scan(const StateShape& state) {
  constexpr std::uint32_t kMaxHeads = 4096, kMaxSize = 4096, kMaxValues = 1U << 20;
  const bool is_delta = state.kind == StateKind::gated_delta;
  const char* heads = is_delta ? "linear_num_value_heads" : "mamba_n_heads";
  const char* head_dim = is_delta ? "linear_value_head_dim" : "mamba_d_head";
  const char* groups = is_delta ? "linear_num_key_heads" : "mamba_n_groups";
  const std::tuple<const char*, std::uint32_t, std::uint32_t> ranges[] = {
      {heads, state.heads, kMaxHeads},
      {head_dim, state.head_dim, kMaxValues / kMaxHeads * 4},
      {groups, state.groups, state.heads},
      {is_delta ? "linear_key_head_dim" : "mamba_d_state", state.size, kMaxSize}};
  for (const auto& [name, value, limit] : ranges)
    if (value == 0 || value > limit) return wrong_value(name, fmt::format("{} is out of range (1 to {})", value, limit));
  if (state.heads % state.groups != 0)
    return wrong_value(groups, fmt::format("{} heads cannot be divided into {} groups", state.heads, state.groups));
  if (state.head_dim % kScanLanes != 0) {
    return Error{ErrorCode::unsupported, head_dim, fmt::format("{} is not a multiple of {}", state.head_dim, kScanLanes),
                 "use a model with another head size"};
  }
  if (is_delta && state.size % 4 != 0) {
    return Error{ErrorCode::unsupported, "linear_key_head_dim", fmt::format("{} is not a multiple of 4", state.size),
                 "use a model with another head size"};
  }
  if (state.norm_groups == 0 || state.heads * state.head_dim % state.norm_groups != 0)
    return wrong_value("mamba_n_groups", fmt::format("{} norm groups cannot divide the values of a state evenly", state.norm_groups));
  for (const float scale : {state.input_scale, state.output_scale, state.part_scales[0], state.part_scales[1], state.part_scales[2],
                            state.part_scales[3], state.part_scales[4]})
    if (!std::isfinite(scale)) return wrong_value("ssm_multipliers", fmt::format("is {}, but must be a finite number", scale));
  return std::nullopt;
}

std::optional<Error> check_states(const ModelConfig& c) {
  const auto has_state = [](LayerMemory memory) { return memory != LayerMemory::attention; };
  if (std::ranges::none_of(c.layer_memories, has_state)) return std::nullopt;
  QUIRE_CHECK(c.layer_memories.size() == c.num_layers && c.state.kind != StateKind::none,
              "a model with states lists its layer kinds and has a kind of state");
  if (std::ranges::all_of(c.layer_memories, [](LayerMemory memory) { return memory == LayerMemory::state; }))
    return Error{ErrorCode::unsupported, "layer_types", "no layer has attention", "use a model with at least one attention layer"};
  if (c.state.conv_taps < 2 || c.state.conv_taps > kMaxConvTaps) {
    return Error{ErrorCode::unsupported, "conv_kernel", fmt::format("{} is out of range (2 to {})", c.state.conv_taps, kMaxConvTaps),
                 "use a model with a convolution of supported length"};
  }
  return c.state.kind == StateKind::short_conv ? std::nullopt : check_scan(c.state);
}

}  // namespace

Error wrong_value(std::string name, std::string problem) {
  return {ErrorCode::corrupt, std::move(name), std::move(problem),
          "use the config that belongs to the weights, or download the model again"};
}

std::uint32_t LayerShape::state_input_size() const {
  if (state.kind == StateKind::short_conv) return 3 * hidden_size;
  if (state.kind == StateKind::gated_delta) return 2 * state.groups * state.size + 2 * state_output_size();
  return state_output_size() + conv_channels() + state.heads;
}

std::uint32_t LayerShape::conv_channels() const {
  return state.kind == StateKind::short_conv ? hidden_size : state_output_size() + 2 * state.groups * state.size;
}

std::size_t LayerShape::state_row_size() const {
  if (state.kind != StateKind::gated_delta) return state_input_size();
  return std::size_t{state_input_size()} + 2 * std::size_t{state.heads} + conv_channels();
}

std::uint32_t LayerShape::state_output_size() const {
  return state.kind == StateKind::short_conv ? hidden_size : state.heads * state.head_dim;
}

std::vector<std::vector<std::uint64_t>> LayerShape::state_shapes() const {
  if (state.kind == StateKind::none) return {};
  std::vector<std::vector<std::uint64_t>> shapes = {{state.conv_taps - 1, conv_channels()}};
  if (state.kind != StateKind::short_conv) shapes.push_back({state.heads, state.head_dim, state.size});
  return shapes;
}

LayerConfig ModelConfig::layer(std::uint32_t index) const {
  LayerConfig layer{*this};
  layer.window = sliding_windows.empty() ? 0 : sliding_windows[index];
  const bool has_own = layer.window > 0 && window_rope_theta != 0.0;
  if (!dense_layers.empty() && dense_layers[index]) layer.num_experts = 0;
  if (!layer_memories.empty()) layer.memory = layer_memories[index];
  layer.has_feed_forward = feed_forward_blocks.empty() || feed_forward_blocks[index] != kNoBlock;
  layer.rotation = !layer_rotates(index) ? Rotation::none : has_own ? Rotation::window : Rotation::model;
  return layer;
}

// Accepts any numbers; check() reports numbers that are out of range.
void ModelConfig::set_latent_heads() {
  num_kv_heads = 1;
  head_dim = latent.kv_rank + rotary_dim;
  attention_scale = 1.0F / std::sqrt(static_cast<float>(std::max(latent.key_dim + rotary_dim, 1U)));
}

std::vector<float> ModelConfig::rope_frequencies() const {
  if (rope_scaling == RopeScaling::yarn) return yarn_frequencies(*this);
  std::vector<float> frequencies(rotary_dim / 2);
  for (std::uint32_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] = static_cast<float>(scaled_frequency(*this, std::pow(rope_theta, -2.0 * i / rotary_dim)));
  return frequencies;
}

std::vector<float> ModelConfig::window_rope_frequencies() const {
  std::vector<float> frequencies(window_rope_theta == 0.0 ? 0 : rotary_dim / 2);
  for (std::uint32_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] = static_cast<float>(std::pow(window_rope_theta, -2.0 * i / rotary_dim));
  return frequencies;
}

std::optional<Error> ModelConfig::check() const {
  // The limits are far above any real model, and so low that no product of two values overflows 64 bits.
  constexpr std::uint32_t kMax = 1U << 20;
  const std::tuple<const char*, std::uint32_t, std::uint32_t> ranges[] = {{"num_layers", num_layers, 4096},
                                                                          {"hidden_size", hidden_size, kMax},
                                                                          {"intermediate_size", intermediate_size, kMax},
                                                                          {"num_heads", num_heads, 4096},
                                                                          {"num_kv_heads", num_kv_heads, 4096},
                                                                          {"vocab_size", vocab_size, 1U << 24},
                                                                          {"context_length", context_length, 1U << 30},
                                                                          {"head_dim", head_dim, 1U << 16}};
  for (const auto& [name, value, limit] : ranges)
    if (value == 0 || value > limit) return wrong_value(name, fmt::format("{} is out of range (1 to {})", value, limit));
  if (num_heads % num_kv_heads != 0)
    return wrong_value("num_kv_heads", fmt::format("{} heads are not a multiple of {} KV heads", num_heads, num_kv_heads));
  if (head_dim % 16 != 0 || head_dim > kMaxHeadDim) {
    return Error{ErrorCode::unsupported, "head_dim", fmt::format("{} is not a multiple of 16 from 16 to {}", head_dim, kMaxHeadDim),
                 "use a model with another head size"};
  }
  if (!(norm_epsilon > 0.0F) || !(norm_epsilon < 1.0F))
    return wrong_value("norm_epsilon", fmt::format("{} is out of range (0 to 1)", norm_epsilon));
  if (auto error = check_scales(*this)) return error;
  if (auto error = check_latents(*this)) return error;
  if (auto error = check_experts(*this)) return error;
  if (auto error = check_states(*this)) return error;
  return check_rope(*this);
}

}  // namespace quire
