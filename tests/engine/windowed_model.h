#pragma once
// Small models for the engine's tests, in addition to the real one. The windowed model has two layers with full attention and four with
// windows of 24 tokens. They make three cache groups whose windows begin and end inside blocks, prefixes and chunks.
#include <boost/json/object.hpp>
#include <optional>
#include <string>

#include "runtime/model/tiny_model.h"

namespace quire::tiny {

// Writes a Hugging Face folder at `path` without a tokenizer. `eos` is the token that ends an answer, if any.
inline void write_windowed_weights(const std::string& path, std::optional<int> eos = std::nullopt) {
  ModelConfig config = small_llama();
  config.architecture = "qwen2";
  config.num_layers = 6;
  config.qkv_bias = true;
  boost::json::object json{{"model_type", "qwen2"},        {"vocab_size", 300},          {"hidden_size", 256},
                           {"intermediate_size", 256},     {"num_hidden_layers", 6},     {"num_attention_heads", 4},
                           {"num_key_value_heads", 2},     {"rms_norm_eps", 1e-5},       {"max_position_embeddings", 512},
                           {"tie_word_embeddings", false}, {"use_sliding_window", true}, {"sliding_window", 24},
                           {"max_window_layers", 2}};
  if (eos.has_value()) json["eos_token_id"] = *eos;
  write_hf_folder(path, json, make_tensors(config, false, "BF16"));
}

// Writes a mixture of experts: three layers with seven experts and a shared one, and a dense layer between them.
inline void write_mixture_weights(const std::string& path) {
  ModelConfig config = small_mixture("qwen2_moe");
  config.num_layers = 4;
  config.dense_layers = {false, true, false, false};
  const boost::json::object json{{"model_type", "qwen2_moe"},
                                 {"vocab_size", config.vocab_size},
                                 {"hidden_size", config.hidden_size},
                                 {"intermediate_size", config.intermediate_size},
                                 {"moe_intermediate_size", config.expert_size},
                                 {"shared_expert_intermediate_size", config.shared_expert_size},
                                 {"num_experts", config.num_experts},
                                 {"num_experts_per_tok", config.experts_per_token},
                                 {"mlp_only_layers", boost::json::array{1}},
                                 {"num_hidden_layers", config.num_layers},
                                 {"num_attention_heads", config.num_heads},
                                 {"num_key_value_heads", config.num_kv_heads},
                                 {"rms_norm_eps", 1e-5},
                                 {"max_position_embeddings", 512},
                                 {"tie_word_embeddings", false}};
  write_hf_folder(path, json, make_tensors(config, false, "BF16"));
}

inline void write_deepseek_weights(const std::string& path) {
  ModelConfig config = small_deepseek("deepseek_v3");
  config.context_length = 512;
  write_gguf(path, config, "F32");
}

inline void write_gpt_oss_weights(const std::string& path) {
  ModelConfig config = small_gpt_oss();
  config.num_layers = 4;
  config.sliding_windows = {40, 0, 40, 0};
  config.context_length = 512;
  write_gguf(path, config, "MXFP4");
}

// Writes a hybrid: two attention layers, and four with short convolutions.
inline void write_lfm2_weights(const std::string& path, std::optional<int> eos = std::nullopt) {
  ModelConfig config = small_lfm2();
  config.num_layers = 6;
  constexpr auto kState = LayerMemory::state, kAttention = LayerMemory::attention;
  config.layer_memories = {kState, kState, kAttention, kState, kAttention, kState};
  boost::json::array types;
  for (const LayerMemory memory : config.layer_memories) types.emplace_back(memory == kState ? "conv" : "full_attention");
  boost::json::object json{{"model_type", "lfm2"},
                           {"vocab_size", config.vocab_size},
                           {"hidden_size", config.hidden_size},
                           {"intermediate_size", config.intermediate_size},
                           {"block_auto_adjust_ff_dim", false},
                           {"num_hidden_layers", config.num_layers},
                           {"num_attention_heads", config.num_heads},
                           {"num_key_value_heads", config.num_kv_heads},
                           {"layer_types", types},
                           {"max_position_embeddings", 512}};
  if (eos.has_value()) json["eos_token_id"] = *eos;
  write_hf_folder(path, json, make_tensors(config, false, "BF16"));
}

// Writes a model with Mamba-2 layers whose states fit into 16 tokens. "granitemoehybrid" has two attention layers, four with states, and
// experts. "falcon_h1" has four layers that do both.
inline void write_mamba_weights(const std::string& path, const std::string& architecture, std::optional<int> eos = std::nullopt) {
  ModelConfig config = small_mamba(architecture);
  const bool is_granite = architecture == "granitemoehybrid";
  constexpr auto kState = LayerMemory::state, kAttention = LayerMemory::attention;
  config.num_layers = is_granite ? 6 : 4;
  if (is_granite) config.layer_memories = {kState, kState, kAttention, kState, kAttention, kState};
  config.state.head_dim = 16;
  config.state.size = 8;
  config.state.has_norm = is_granite;
  config.expert_tensors = ExpertTensors::stacked_gate_up;
  config.fused_shared_gate_up = true;
  boost::json::object json{{"model_type", architecture},
                           {"vocab_size", config.vocab_size},
                           {"hidden_size", config.hidden_size},
                           {"intermediate_size", is_granite ? config.expert_size : config.intermediate_size},
                           {"num_hidden_layers", config.num_layers},
                           {"num_attention_heads", config.num_heads},
                           {"num_key_value_heads", config.num_kv_heads},
                           {"head_dim", config.head_dim},
                           {"mamba_n_heads", config.state.heads},
                           {"mamba_d_head", config.state.head_dim},
                           {"mamba_d_ssm", 64},
                           {"mamba_expand", 0.25},
                           {"mamba_n_groups", config.state.groups},
                           {"mamba_d_state", config.state.size},
                           {"max_position_embeddings", 512}};
  if (is_granite) {
    boost::json::array types;
    for (const LayerMemory memory : config.layer_memories) types.emplace_back(memory == kState ? "mamba" : "attention");
    json["layer_types"] = types;
    json["num_local_experts"] = config.num_experts;
    json["num_experts_per_tok"] = config.experts_per_token;
    json["shared_intermediate_size"] = config.shared_expert_size;
    json["attention_multiplier"] = 0.125;
  }
  if (eos.has_value()) json["eos_token_id"] = *eos;
  write_hf_folder(path, json, make_tensors(config, false, "BF16"));
}

// Writes three layers with gated delta rules, one attention layer, and experts in all.
inline void write_qwen3_next_weights(const std::string& path) {
  const ModelConfig config = small_qwen3_next();
  boost::json::array types;
  for (const LayerMemory memory : config.layer_memories)
    types.emplace_back(memory == LayerMemory::state ? "linear_attention" : "full_attention");
  const boost::json::object json{{"model_type", "qwen3_next"},
                                 {"vocab_size", config.vocab_size},
                                 {"hidden_size", config.hidden_size},
                                 {"intermediate_size", config.intermediate_size},
                                 {"moe_intermediate_size", config.expert_size},
                                 {"shared_expert_intermediate_size", config.shared_expert_size},
                                 {"num_experts", config.num_experts},
                                 {"num_experts_per_tok", config.experts_per_token},
                                 {"num_hidden_layers", config.num_layers},
                                 {"num_attention_heads", config.num_heads},
                                 {"num_key_value_heads", config.num_kv_heads},
                                 {"head_dim", config.head_dim},
                                 {"layer_types", types},
                                 {"linear_num_value_heads", config.state.heads},
                                 {"linear_num_key_heads", config.state.groups},
                                 {"linear_value_head_dim", config.state.head_dim},
                                 {"linear_key_head_dim", config.state.size},
                                 {"max_position_embeddings", 512}};
  write_hf_folder(path, json, make_tensors(config, false, "BF16"));
}

}  // namespace quire::tiny
