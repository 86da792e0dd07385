#pragma once
// The tensors of a decoder by their role; what GGUF and Hugging Face call them.
#include <cstdint>
#include <string>

namespace quire {

enum class TensorRole : std::uint8_t {
  token_embedding,
  output_norm,
  output,
  rope_factors,
  // per layer
  attn_norm,
  q,
  k,
  v,
  attn_output,
  q_bias,
  k_bias,
  v_bias,
  attn_output_bias,
  q_norm,
  k_norm,
  ffn_norm,
  gate,
  up,
  down,
  gate_bias,
  up_bias,
  down_bias,
};

std::string gguf_tensor_name(TensorRole role, std::uint32_t layer);
// rope_factors has no name there: empty.
std::string hf_tensor_name(TensorRole role, std::uint32_t layer);

}  // namespace quire
