// The table of roles and usual names of tensors. Called while a model's headers are read, on the thread that opens the model; pure
// functions. A name has one role within a file format: a family's names (config/families_*.cpp) must not use a name of this table for
// another role.
#include "runtime/model/weights/tensor_names.h"

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
    {TensorRole::sinks, true, "attn_sinks.weight", "self_attn.sinks"},
    {TensorRole::q_a, true, "attn_q_a.weight", "self_attn.q_a_proj.weight"},
    {TensorRole::q_a_norm, true, "attn_q_a_norm.weight", "self_attn.q_a_layernorm.weight"},
    {TensorRole::q_b, true, "attn_q_b.weight", "self_attn.q_b_proj.weight"},
    {TensorRole::kv_a, true, "attn_kv_a_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight"},
    {TensorRole::kv_a_norm, true, "attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight"},
    {TensorRole::kv_b, true, "attn_kv_b.weight", "self_attn.kv_b_proj.weight"},
    {TensorRole::k_b, true, "attn_k_b.weight", ""},
    {TensorRole::v_b, true, "attn_v_b.weight", ""},
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
    {TensorRole::router, true, "ffn_gate_inp.weight", "mlp.gate.weight"},
    {TensorRole::expert_gate, true, "ffn_gate_exps.weight", "mlp.experts.{}.gate_proj.weight"},
    {TensorRole::expert_up, true, "ffn_up_exps.weight", "mlp.experts.{}.up_proj.weight"},
    {TensorRole::expert_down, true, "ffn_down_exps.weight", "mlp.experts.{}.down_proj.weight"},
    {TensorRole::block_router, true, "ffn_gate_inp.weight", "block_sparse_moe.gate.weight"},
    {TensorRole::block_expert_gate, true, "ffn_gate_exps.weight", "block_sparse_moe.experts.{}.w1.weight"},
    {TensorRole::block_expert_up, true, "ffn_up_exps.weight", "block_sparse_moe.experts.{}.w3.weight"},
    {TensorRole::block_expert_down, true, "ffn_down_exps.weight", "block_sparse_moe.experts.{}.w2.weight"},
    {TensorRole::stack_router, true, "ffn_gate_inp.weight", "block_sparse_moe.router.layer.weight"},
    {TensorRole::stack_gate_up, true, "ffn_gate_exps.weight", "block_sparse_moe.input_linear.weight"},
    {TensorRole::stack_down, true, "ffn_down_exps.weight", "block_sparse_moe.output_linear.weight"},
    {TensorRole::transposed_router, true, "ffn_gate_inp.weight", "mlp.router.weight"},
    {TensorRole::transposed_gate_up, true, "ffn_gate_exps.weight", "mlp.experts.gate_up_proj"},
    {TensorRole::transposed_down, true, "ffn_down_exps.weight", "mlp.experts.down_proj"},
    {TensorRole::shared_gate, true, "ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight"},
    {TensorRole::shared_up, true, "ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight"},
    {TensorRole::shared_down, true, "ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight"},
    {TensorRole::shared_weight, true, "ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight"},
    {TensorRole::router_bias, true, "ffn_gate_inp.bias", "mlp.router.bias"},
    {TensorRole::expert_gate_bias, true, "ffn_gate_exps.bias", "mlp.experts.gate_up_proj_bias"},
    {TensorRole::expert_up_bias, true, "ffn_up_exps.bias", "mlp.experts.gate_up_proj_bias"},
    {TensorRole::expert_down_bias, true, "ffn_down_exps.bias", "mlp.experts.down_proj_bias"},
    {TensorRole::choice_bias, true, "exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
    {TensorRole::other_shared_gate, true, "ffn_gate_shexp.weight", "mlp.shared_experts.gate_proj.weight"},
    {TensorRole::other_shared_up, true, "ffn_up_shexp.weight", "mlp.shared_experts.up_proj.weight"},
    {TensorRole::other_shared_down, true, "ffn_down_shexp.weight", "mlp.shared_experts.down_proj.weight"},
    {TensorRole::shared_gate_up, true, "ffn_gate_up_shexp.weight", "shared_mlp.input_linear.weight"},
    {TensorRole::state_input, true, "ssm_in.weight", "mamba.in_proj.weight"},
    {TensorRole::state_input_bias, true, "ssm_in.bias", "mamba.in_proj.bias"},
    {TensorRole::conv, true, "ssm_conv1d.weight", "mamba.conv1d.weight"},
    {TensorRole::conv_bias, true, "ssm_conv1d.bias", "mamba.conv1d.bias"},
    {TensorRole::state_output, true, "ssm_out.weight", "mamba.out_proj.weight"},
    {TensorRole::state_output_bias, true, "ssm_out.bias", "mamba.out_proj.bias"},
    {TensorRole::step_bias, true, "ssm_dt.bias", "mamba.dt_bias"},
    {TensorRole::state_decay, true, "ssm_a", "mamba.A_log"},
    {TensorRole::state_skip, true, "ssm_d", "mamba.D"},
    {TensorRole::state_norm, true, "ssm_norm.weight", "mamba.norm.weight"},
    {TensorRole::state_rates, true, "ssm_ba.weight", "linear_attn.in_proj_ba.weight"},
    {TensorRole::state_gate, true, "attn_gate.weight", ""},
};

Names names_of(TensorRole role, const TensorNames* which) {
  Names names = kNames[static_cast<std::size_t>(role)];
  QUIRE_CHECK(names.role == role, "the table is in the order of the roles");
  if (which == nullptr) return names;
  for (const TensorName& other : which->others) {
    if (other.role != role) continue;
    if (other.gguf != nullptr) names.gguf = other.gguf;
    if (other.hf != nullptr) names.hf = other.hf;
  }
  return names;
}

}  // namespace

std::string gguf_tensor_name(TensorRole role, std::uint32_t layer, const TensorNames* which) {
  const Names names = names_of(role, which);
  return names.per_layer ? fmt::format("blk.{}.{}", layer, names.gguf) : names.gguf;
}

std::string hf_tensor_name(TensorRole role, std::uint32_t layer, std::uint32_t expert, const TensorNames* which) {
  const Names names = names_of(role, which);
  const char* decoder = which == nullptr ? TensorNames{}.hf_decoder : which->hf_decoder;
  return names.per_layer ? fmt::format("{}.layers.{}.{}", decoder, layer, fmt::format(fmt::runtime(names.hf), expert)) : names.hf;
}

}  // namespace quire
