#pragma once
// The roles of a decoder's tensors, and how a family names its tensors. The usual names are in weights/tensor_names.cpp.
#include <cstdint>
#include <span>

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
  ffn_pre_norm,  // ffn_norm in models that also have attn_post_norm
  gate,
  up,
  down,
  gate_up,
  gate_bias,
  up_bias,
  down_bias,
  ffn_post_norm,
  // for a mixture of experts; depends on ExpertTensors
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
  transposed_router,
  transposed_gate_up,
  transposed_down,
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
  // for a layer with a state
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

// A tensor name that differs from the usual name; null: the usual name. `hf` may contain {} for the number of the expert.
struct TensorName {
  TensorRole role;
  const char* gguf;
  const char* hf;
};

// The tensor names of a family that differ from the usual names.
struct TensorNames {
  const char* hf_decoder = "model";  // prefix of the names of layers in folders
  std::span<const TensorName> others;
};

}  // namespace quire
