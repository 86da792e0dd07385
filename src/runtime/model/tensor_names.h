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
};

// What goes by the name of the norm before the feed-forward part.
constexpr TensorRole ffn_norm_role(bool has_post_norms) {
  return has_post_norms ? TensorRole::ffn_pre_norm : TensorRole::ffn_norm;
}

std::string gguf_tensor_name(TensorRole role, std::uint32_t layer);
// The factors of the rotation have no name there: empty.
std::string hf_tensor_name(TensorRole role, std::uint32_t layer);

}  // namespace quire
