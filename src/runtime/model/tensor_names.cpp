#include "runtime/model/tensor_names.h"

#include <fmt/format.h>

#include "base/check.h"

namespace quire {
namespace {

struct Names {
  TensorRole role;
  bool per_layer;
  const char* gguf;
  const char* hf;
};

constexpr Names kNames[] = {
    {TensorRole::token_embedding, false, "token_embd.weight", "model.embed_tokens.weight"},
    {TensorRole::output_norm, false, "output_norm.weight", "model.norm.weight"},
    {TensorRole::output, false, "output.weight", "lm_head.weight"},
    {TensorRole::rope_factors, false, "rope_freqs.weight", ""},
    {TensorRole::rope_short_factors, false, "rope_factors_short.weight", ""},
    {TensorRole::rope_long_factors, false, "rope_factors_long.weight", ""},
    {TensorRole::attn_norm, true, "attn_norm.weight", "input_layernorm.weight"},
    {TensorRole::q, true, "attn_q.weight", "self_attn.q_proj.weight"},
    {TensorRole::k, true, "attn_k.weight", "self_attn.k_proj.weight"},
    {TensorRole::v, true, "attn_v.weight", "self_attn.v_proj.weight"},
    {TensorRole::qkv, true, "attn_qkv.weight", "self_attn.qkv_proj.weight"},
    {TensorRole::attn_output, true, "attn_output.weight", "self_attn.o_proj.weight"},
    {TensorRole::q_bias, true, "attn_q.bias", "self_attn.q_proj.bias"},
    {TensorRole::k_bias, true, "attn_k.bias", "self_attn.k_proj.bias"},
    {TensorRole::v_bias, true, "attn_v.bias", "self_attn.v_proj.bias"},
    {TensorRole::attn_output_bias, true, "attn_output.bias", "self_attn.o_proj.bias"},
    {TensorRole::q_norm, true, "attn_q_norm.weight", "self_attn.q_norm.weight"},
    {TensorRole::k_norm, true, "attn_k_norm.weight", "self_attn.k_norm.weight"},
    {TensorRole::attn_post_norm, true, "post_attention_norm.weight", "post_attention_layernorm.weight"},
    {TensorRole::ffn_norm, true, "ffn_norm.weight", "post_attention_layernorm.weight"},
    {TensorRole::ffn_pre_norm, true, "ffn_norm.weight", "pre_feedforward_layernorm.weight"},
    {TensorRole::gate, true, "ffn_gate.weight", "mlp.gate_proj.weight"},
    {TensorRole::up, true, "ffn_up.weight", "mlp.up_proj.weight"},
    {TensorRole::down, true, "ffn_down.weight", "mlp.down_proj.weight"},
    {TensorRole::gate_up, true, "ffn_up.weight", "mlp.gate_up_proj.weight"},
    {TensorRole::gate_bias, true, "ffn_gate.bias", "mlp.gate_proj.bias"},
    {TensorRole::up_bias, true, "ffn_up.bias", "mlp.up_proj.bias"},
    {TensorRole::down_bias, true, "ffn_down.bias", "mlp.down_proj.bias"},
    {TensorRole::ffn_post_norm, true, "post_ffw_norm.weight", "post_feedforward_layernorm.weight"},
};

const Names& names_of(TensorRole role) {
  const Names& names = kNames[static_cast<std::size_t>(role)];
  QUIRE_CHECK(names.role == role, "the table follows the order of the roles");
  return names;
}

}  // namespace

std::string gguf_tensor_name(TensorRole role, std::uint32_t layer) {
  const Names& names = names_of(role);
  return names.per_layer ? fmt::format("blk.{}.{}", layer, names.gguf) : names.gguf;
}

std::string hf_tensor_name(TensorRole role, std::uint32_t layer) {
  const Names& names = names_of(role);
  return names.per_layer ? fmt::format("model.layers.{}.{}", layer, names.hf) : names.hf;
}

}  // namespace quire
