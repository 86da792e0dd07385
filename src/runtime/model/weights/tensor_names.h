#pragma once
// The tensors of a decoder by their role; what GGUF and Hugging Face call them.
// Pure functions, called while a model's headers are read. What a file calls otherwise is not found, and then it is an error that names it.
#include <cstdint>
#include <string>

#include "runtime/model/config/model_config.h"

namespace quire {

enum class TensorRole : std::uint8_t {
  token_embedding,
  output_norm,
  output,
  rope_factors,
  rope_short_factors,
  rope_long_factors,
  // per layer
  attn_norm,
  q,
  k,
  v,
  qkv,
  attn_output,
  q_bias,
  k_bias,
  v_bias,
  attn_output_bias,
  q_norm,
  k_norm,
  sinks,
  q_a,
  q_a_norm,
  q_b,
  kv_a,
  kv_a_norm,
  kv_b,
  k_b,
  v_b,
  attn_post_norm,
  ffn_norm,
  ffn_pre_norm,  // the same where there is an attn_post_norm, too
  gate,
  up,
  down,
  gate_up,
  gate_bias,
  up_bias,
  down_bias,
  ffn_post_norm,
  // of a mixture of experts; by ExpertTensors
  router,
  expert_gate,
  expert_up,
  expert_down,
  block_router,
  block_expert_gate,
  block_expert_up,
  block_expert_down,
  stack_router,
  stack_gate_up,
  stack_down,
  turned_router,
  turned_gate_up,
  turned_down,
  shared_gate,
  shared_up,
  shared_down,
  shared_weight,
  router_bias,
  expert_gate_bias,
  expert_up_bias,
  expert_down_bias,
  choice_bias,
  other_shared_gate,
  other_shared_up,
  other_shared_down,
  shared_gate_up,
  // of a layer with a state
  state_input,
  state_input_bias,
  conv,
  conv_bias,
  state_output,
  state_output_bias,
  step_bias,
  state_decay,
  state_skip,
  state_norm,
  state_rates,
  state_gate,
};

// Whether each expert has matrices of its own in the file.
constexpr bool are_apart(ExpertTensors tensors) {
  return tensors == ExpertTensors::apart || tensors == ExpertTensors::apart_in_block || tensors == ExpertTensors::apart_shared;
}

struct ExpertRoles {
  TensorRole router, gate, up, down;
};

constexpr ExpertRoles expert_roles(ExpertTensors tensors) {
  using enum TensorRole;
  switch (tensors) {
    case ExpertTensors::apart_in_block:
      return {block_router, block_expert_gate, block_expert_up, block_expert_down};
    case ExpertTensors::stacked_gate_up:
      return {stack_router, stack_gate_up, stack_gate_up, stack_down};
    case ExpertTensors::turned:
      return {turned_router, turned_gate_up, turned_gate_up, turned_down};
    case ExpertTensors::apart:
    case ExpertTensors::apart_shared:
    case ExpertTensors::stacked:
      break;
  }
  return {router, expert_gate, expert_up, expert_down};
}

constexpr ExpertRoles shared_expert_roles(ExpertTensors tensors) {
  using enum TensorRole;
  if (tensors == ExpertTensors::apart_shared) return {router, other_shared_gate, other_shared_up, other_shared_down};
  return {router, shared_gate, shared_up, shared_down};
}

// What goes by the name of the norm before the feed-forward part.
constexpr TensorRole ffn_norm_role(const LayerShape& shape) {
  if (shape.late_norm_name) return TensorRole::attn_post_norm;
  return shape.post_norms ? TensorRole::ffn_pre_norm : TensorRole::ffn_norm;
}

// Of the feed-forward part.
constexpr bool is_feed_forward(TensorRole role) {
  return role >= TensorRole::ffn_norm && role <= TensorRole::shared_gate_up;
}

// Which block of the file has it.
constexpr std::uint32_t block_of(TensorRole role, std::uint32_t layer, const ModelConfig& config) {
  if (config.look_back_blocks.empty()) return layer;
  return is_feed_forward(role) ? config.feed_forward_blocks[layer] : config.look_back_blocks[layer];
}

std::string gguf_tensor_name(TensorRole role, std::uint32_t layer, TensorNames names = TensorNames::usual);
// The factors of the rotation have no name there: empty. `expert` counts where each expert has a matrix of its own.
std::string hf_tensor_name(TensorRole role, std::uint32_t layer, std::uint32_t expert = 0, TensorNames names = TensorNames::usual);

}  // namespace quire
