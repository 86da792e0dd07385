// The families with states in some layers, and Whisper. Called while a model's headers are read; any thread.
#include "runtime/model/config/config_blocks.h"
#include "runtime/model/config/config_experts.h"
#include "runtime/model/config/config_states.h"
#include "runtime/model/config/families.h"

namespace quire {
namespace {

constexpr TensorName kLfm2Others[] = {
    {TensorRole::output_norm, "token_embd_norm.weight", "model.embedding_norm.weight"},
    {TensorRole::attn_norm, nullptr, "operator_norm.weight"},
    {TensorRole::ffn_norm, nullptr, "ffn_norm.weight"},
    {TensorRole::attn_output, nullptr, "self_attn.out_proj.weight"},
    {TensorRole::q_norm, nullptr, "self_attn.q_layernorm.weight"},
    {TensorRole::k_norm, nullptr, "self_attn.k_layernorm.weight"},
    {TensorRole::gate, nullptr, "feed_forward.w1.weight"},
    {TensorRole::up, nullptr, "feed_forward.w3.weight"},
    {TensorRole::down, nullptr, "feed_forward.w2.weight"},
    {TensorRole::router, nullptr, "feed_forward.gate.weight"},
    {TensorRole::choice_bias, nullptr, "feed_forward.expert_bias"},
    {TensorRole::expert_gate, nullptr, "feed_forward.experts.{}.w1.weight"},
    {TensorRole::expert_up, nullptr, "feed_forward.experts.{}.w3.weight"},
    {TensorRole::expert_down, nullptr, "feed_forward.experts.{}.w2.weight"},
    {TensorRole::state_input, "shortconv.in_proj.weight", "conv.in_proj.weight"},
    {TensorRole::state_input_bias, "shortconv.in_proj.bias", "conv.in_proj.bias"},
    {TensorRole::conv, "shortconv.conv.weight", "conv.conv.weight"},
    {TensorRole::conv_bias, "shortconv.conv.bias", "conv.conv.bias"},
    {TensorRole::state_output, "shortconv.out_proj.weight", "conv.out_proj.weight"},
    {TensorRole::state_output_bias, "shortconv.out_proj.bias", "conv.out_proj.bias"},
};
constexpr TensorNames kLfm2Names{.others = kLfm2Others};

constexpr TensorName kNemotronOthers[] = {
    {TensorRole::token_embedding, nullptr, "backbone.embeddings.weight"},
    {TensorRole::output_norm, nullptr, "backbone.norm_f.weight"},
    {TensorRole::attn_norm, nullptr, "norm.weight"},
    {TensorRole::ffn_norm, "attn_norm.weight", "norm.weight"},
    {TensorRole::q, nullptr, "mixer.q_proj.weight"},
    {TensorRole::k, nullptr, "mixer.k_proj.weight"},
    {TensorRole::v, nullptr, "mixer.v_proj.weight"},
    {TensorRole::attn_output, nullptr, "mixer.o_proj.weight"},
    {TensorRole::up, nullptr, "mixer.up_proj.weight"},
    {TensorRole::down, nullptr, "mixer.down_proj.weight"},
    {TensorRole::router, nullptr, "mixer.gate.weight"},
    {TensorRole::choice_bias, nullptr, "mixer.gate.e_score_correction_bias"},
    {TensorRole::expert_up, nullptr, "mixer.experts.{}.up_proj.weight"},
    {TensorRole::expert_down, nullptr, "mixer.experts.{}.down_proj.weight"},
    {TensorRole::other_shared_up, nullptr, "mixer.shared_experts.up_proj.weight"},
    {TensorRole::other_shared_down, nullptr, "mixer.shared_experts.down_proj.weight"},
    {TensorRole::state_input, nullptr, "mixer.in_proj.weight"},
    {TensorRole::state_input_bias, nullptr, "mixer.in_proj.bias"},
    {TensorRole::conv, nullptr, "mixer.conv1d.weight"},
    {TensorRole::conv_bias, nullptr, "mixer.conv1d.bias"},
    {TensorRole::state_output, nullptr, "mixer.out_proj.weight"},
    {TensorRole::state_output_bias, nullptr, "mixer.out_proj.bias"},
    {TensorRole::step_bias, nullptr, "mixer.dt_bias"},
    {TensorRole::state_decay, nullptr, "mixer.A_log"},
    {TensorRole::state_skip, nullptr, "mixer.D"},
    {TensorRole::state_norm, nullptr, "mixer.norm.weight"},
};
constexpr TensorNames kNemotronNames{.hf_decoder = "backbone", .others = kNemotronOthers};

constexpr TensorName kGraniteOthers[] = {
    {TensorRole::gate_up, nullptr, "shared_mlp.input_linear.weight"},
    {TensorRole::down, nullptr, "shared_mlp.output_linear.weight"},
    {TensorRole::shared_down, nullptr, "shared_mlp.output_linear.weight"},
};

constexpr TensorName kBambaOthers[] = {
    {TensorRole::output_norm, nullptr, "model.final_layernorm.weight"}, {TensorRole::ffn_norm, nullptr, "pre_ff_layernorm.weight"},
    {TensorRole::gate, nullptr, "feed_forward.gate_proj.weight"},       {TensorRole::up, nullptr, "feed_forward.up_proj.weight"},
    {TensorRole::down, nullptr, "feed_forward.down_proj.weight"},
};
constexpr TensorNames kBambaNames{.others = kBambaOthers};

constexpr TensorName kQwen3NextOthers[] = {
    {TensorRole::state_input, nullptr, "linear_attn.in_proj_qkvz.weight"},
    {TensorRole::conv, nullptr, "linear_attn.conv1d.weight"},
    {TensorRole::state_output, nullptr, "linear_attn.out_proj.weight"},
    {TensorRole::step_bias, nullptr, "linear_attn.dt_bias"},
    {TensorRole::state_decay, nullptr, "linear_attn.A_log"},
    {TensorRole::state_norm, nullptr, "linear_attn.norm.weight"},
};
constexpr TensorNames kQwen3NextNames{.others = kQwen3NextOthers};

constexpr std::array kHybridFamilies{
    ModelFamily{.qk_norm = QkNorm::per_head,
                .hf = {.name = "lfm2",
                       .epsilon_key = "norm_eps",
                       .width_key = "block_ff_dim",
                       .norm_epsilon = 1e-5F,
                       .rope_theta = 1000000.0,
                       .tied_embeddings = true,
                       .activation_may_be_null = true,
                       .tensor_names = &kLfm2Names,
                       .read_states = read_lfm2},
                .gguf = {.names = {"lfm2"}, .always_qk_norm = true, .tensor_names = &kLfm2Names, .read_states = read_short_convs}},
    ModelFamily{.qk_norm = QkNorm::per_head,
                .experts = {.read_hf = read_lfm2_experts, .is_sigmoid = true, .sum_floor = 1e-6F},
                .hf = {.name = "lfm2_moe",
                       .epsilon_key = "norm_eps",
                       .norm_epsilon = 1e-5F,
                       .rope_theta = 1000000.0,
                       .tied_embeddings = true,
                       .activation_may_be_null = true,
                       .tensor_names = &kLfm2Names,
                       .read_states = read_short_convs},
                .gguf = {.names = {"lfm2moe"},
                         .normalizes_experts = true,
                         .lists_dense_layers = true,
                         .always_qk_norm = true,
                         .tensor_names = &kLfm2Names,
                         .read_states = read_short_convs}},
    ModelFamily{.activation = GateActivation::relu2,
                .has_blocks = true,
                .hf = {.name = "nemotron_h",
                       .epsilon_key = "layer_norm_epsilon",
                       .activation_key = "mlp_hidden_act",
                       .even_share_key = "attention_head_dim",
                       .norm_epsilon = 1e-5F,
                       .qkv_bias = kAttentionBias,
                       .output_bias = kAttentionBias,
                       .tensor_names = &kNemotronNames,
                       .read_states = read_blocks},
                .gguf = {.names = {"nemotron_h", "nemotron_h_moe"}, .tensor_names = &kNemotronNames, .read_states = read_blocks}},
    ModelFamily{.hf = {.name = "granitemoehybrid",
                       .qkv_bias = kAttentionBias,
                       .output_bias = kAttentionBias,
                       .tensor_names = &kGraniteNames,
                       .read = read_granite,
                       .read_states = read_granite_hybrid},
                .gguf = {.names = {"granitehybrid"},
                         .rope_style = RopeStyle::interleaved,
                         .normalizes_experts = true,
                         .tensor_names = &kGraniteNames,
                         .read = read_granite,
                         .read_states = read_granite_hybrid}},
    ModelFamily{
        .hf = {.name = "bamba", .norm_epsilon = 1e-5F, .rotated_share = 0.5, .tensor_names = &kBambaNames, .read_states = read_bamba}},
    ModelFamily{.hf = {.name = "falcon_h1",
                       .norm_epsilon = 1e-5F,
                       .rope_theta = 100000.0,
                       .tensor_names = &kBambaNames,
                       .read_states = read_falcon_h1},
                .gguf = {.names = {"falcon-h1"},
                         .adapter_problem = "whose weights are multiplied by factors that the file does not contain",
                         .read_states = read_falcon_h1}},
    ModelFamily{.qk_norm = QkNorm::per_head,
                .experts = {.read_hf = read_plain_experts, .hf_has_width = true, .hf_normalizes = true, .has_shared_gate = true},
                .hf = {.name = "qwen3_next",
                       .head_dim = 256,
                       .rotated_share = 0.25,
                       .tensor_names = &kQwen3NextNames,
                       .read_states = read_qwen3_next},
                .gguf = {.names = {"qwen3next"},
                         .may_lack_experts = true,
                         .normalizes_experts = true,
                         .always_qk_norm = true,
                         .tensor_names = &kQwen3NextNames,
                         .adapter_problem = "whose weight rows are in a different order than the rows of an adapter",
                         .read_states = read_qwen3_next}},
    ModelFamily{.hf = {.name = "whisper", .read_all = config_from_whisper}},
};

}  // namespace

const TensorNames kGraniteNames{.others = kGraniteOthers};

std::span<const ModelFamily> hybrid_families() {
  return kHybridFamilies;
}

}  // namespace quire
