#pragma once
// Configs of small models of each kind.
#include <string>

#include "runtime/model/config/families.h"
#include "runtime/model/config/model_config.h"

namespace quire::tiny {

// A two-layer llama of 300 tokens.
inline ModelConfig small_llama() {
  ModelConfig c;
  c.architecture = "llama";
  c.num_layers = 2;
  c.hidden_size = 256;
  c.intermediate_size = 256;
  c.num_heads = 4;
  c.num_kv_heads = 2;
  c.head_dim = 64;
  c.vocab_size = 300;
  c.context_length = 128;
  c.rotary_dim = 64;
  c.attention_scale = 0.125F;
  return c;
}

// Makes an MoE config. The widths of experts differ from all other widths; "qwen2_moe" has a shared expert, too.
inline ModelConfig small_mixture(const std::string& architecture) {
  ModelConfig c = small_llama();
  c.architecture = architecture;
  c.num_experts = 7;
  c.experts_per_token = 3;
  c.expert_size = 96;
  c.shared_expert_size = architecture == "qwen2_moe" ? 160 : 0;
  c.qkv_bias = architecture == "qwen2_moe";
  c.qk_norm = architecture == "qwen3_moe" ? QkNorm::per_head : architecture == "olmoe" ? QkNorm::whole : QkNorm::none;
  c.normalize_experts = architecture == "qwen3_moe";
  if (architecture == "qwen3_moe") c.expert_size = 72;  // not a multiple of 32, so floats only
  return c;
}

// Makes a config like gpt-oss: sinks, a window in every other layer, yarn, biases everywhere.
inline ModelConfig small_gpt_oss() {
  ModelConfig c = small_mixture("gpt_oss");
  c.normalize_experts = c.expert_bias = c.attention_sinks = c.qkv_bias = c.output_bias = c.late_norm_name = true;
  c.activation = GateActivation::swiglu_limited;
  c.swiglu_limit = 7.0F;
  c.sliding_windows = {20, 0};
  c.rope_scaling = RopeScaling::yarn;
  c.rope_factor = 4.0;
  c.rope_original_context = 32;
  c.rope_truncates = false;
  return c;
}

// Makes a config like DeepSeek V2 or V3. V3 has low-rank queries and grouped experts.
inline ModelConfig small_deepseek(const std::string& architecture) {
  ModelConfig c = small_mixture(architecture);
  const bool is_v3 = architecture == "deepseek_v3";
  c.latent = {.kv_rank = 64, .q_rank = is_v3 ? 96U : 0U, .key_dim = 64, .value_dim = 32};
  c.rotary_dim = 32;
  c.set_latent_heads();
  c.rope_style = RopeStyle::interleaved;
  c.num_layers = 3;
  c.dense_layers = {true, false, false};
  c.num_experts = 8;
  c.shared_expert_size = 160;
  c.expert_tensors = ExpertTensors::separate_shared;
  c.has_shared_expert_gate = false;
  c.expert_choice_bias = c.normalize_experts = is_v3;
  c.expert_scoring = is_v3 ? ExpertScoring::sigmoid : ExpertScoring::softmax;
  c.expert_scale = is_v3 ? 2.5F : 1.0F;
  c.num_expert_groups = is_v3 ? 4 : 0;
  c.groups_per_token = is_v3 ? 2 : 0;
  return c;
}

// Short convolutions alternate with attention.
inline ModelConfig small_lfm2() {
  ModelConfig c = small_llama();
  c.architecture = "lfm2";
  c.tensor_names = find_hf_family("lfm2")->hf.tensor_names;
  c.num_layers = 4;
  c.qk_norm = QkNorm::per_head;
  c.tied_embeddings = true;
  c.rope_theta = 1000000.0;
  c.layer_memories = {LayerMemory::state, LayerMemory::attention, LayerMemory::state, LayerMemory::state};
  c.state = {.kind = StateKind::short_conv, .conv_taps = 3};
  return c;
}

// Mamba-2 layers alternate with attention, or run in parallel with it ("falcon_h1"). They have experts ("granitemoehybrid") or not.
inline ModelConfig small_mamba(const std::string& architecture) {
  ModelConfig c = small_llama();
  c.architecture = architecture;
  c.num_layers = 4;
  c.layer_memories = {LayerMemory::state, LayerMemory::attention, LayerMemory::state, LayerMemory::state};
  c.state = {.kind = StateKind::mamba2,
             .conv_taps = 4,
             .conv_bias = true,
             .heads = 4,
             .head_dim = 32,
             .groups = 2,
             .size = 24,
             .has_norm = true,
             .norm_groups = 2};
  c.tensor_names = find_hf_family(architecture)->hf.tensor_names;
  if (architecture == "falcon_h1") {
    c.layer_memories.assign(4, LayerMemory::both);
  } else {
    c.nope_layer_interval = 1;
    c.num_experts = 5;
    c.experts_per_token = 2;
    c.expert_size = 96;
    c.shared_expert_size = 160;
    c.has_shared_expert_gate = false;
    c.normalize_experts = true;
  }
  return c;
}

// Gated delta rules alternate with gated attention; all layers have experts with a shared one. The model exists only as a folder.
inline ModelConfig small_qwen3_next() {
  ModelConfig c = small_mixture("qwen2_moe");
  c.architecture = "qwen3_next";
  c.tensor_names = find_hf_family("qwen3_next")->hf.tensor_names;
  c.qkv_bias = false;
  c.qk_norm = QkNorm::per_head;
  c.normalize_experts = true;
  c.norm_offset = 1.0F;
  c.gated_attention = true;
  c.rotary_dim = 16;
  c.num_layers = 4;
  c.layer_memories = {LayerMemory::state, LayerMemory::state, LayerMemory::attention, LayerMemory::state};
  c.state = {.kind = StateKind::gated_delta,
             .conv_taps = 4,
             .heads = 4,
             .head_dim = 16,
             .groups = 2,
             .size = 8,
             .decay_as_log = true,
             .has_norm = true};
  return c;
}

}  // namespace quire::tiny
