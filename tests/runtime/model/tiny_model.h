#pragma once
// Small models for tests, written as GGUF files or Hugging Face folders.
#include <algorithm>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/tiny_configs.h"
#include "runtime/model/tiny_tensors.h"
#include "runtime/model/weights/tensor_names.h"

namespace quire::tiny {

template <class Add>
void add_experts(const ModelConfig& c, bool gguf, std::uint32_t layer, Add add) {
  const std::uint64_t experts = c.num_experts, hidden = c.hidden_size, size = c.expert_size;
  const bool is_gated = has_gate(c.activation);
  const ExpertRoles roles = expert_roles(gguf ? ExpertTensors::stacked : c.expert_tensors);
  add(roles.router, layer, {experts, hidden});
  if (gguf) {
    if (is_gated) add(roles.gate, layer, {experts, size, hidden});
    add(roles.up, layer, {experts, size, hidden});
    add(roles.down, layer, {experts, hidden, size});
  } else if (c.expert_tensors == ExpertTensors::transposed) {
    add(roles.gate, layer, {experts, hidden, 2 * size});
    add(roles.down, layer, {experts, size, hidden});
  } else if (c.expert_tensors == ExpertTensors::stacked_gate_up) {
    add(roles.gate, layer, {experts, 2 * size, hidden});
    add(roles.down, layer, {experts, hidden, size});
  } else {
    for (std::uint32_t i = 0; i < experts; ++i) {
      if (is_gated) add(roles.gate, layer, {size, hidden}, i);
      add(roles.up, layer, {size, hidden}, i);
      add(roles.down, layer, {hidden, size}, i);
    }
  }
  const std::uint64_t shared = c.shared_expert_size;
  if (shared == 0) return;
  const ExpertRoles shared_roles = shared_expert_roles(gguf ? ExpertTensors::stacked : c.expert_tensors);
  if (c.fused_shared_gate_up && !gguf) {
    add(TensorRole::shared_gate_up, layer, {2 * shared, hidden});
  } else {
    if (is_gated) add(shared_roles.gate, layer, {shared, hidden});
    add(shared_roles.up, layer, {shared, hidden});
  }
  add(shared_roles.down, layer, {hidden, shared});
  if (!c.has_shared_expert_gate) return;
  gguf ? add(TensorRole::shared_weight, layer, {hidden}) : add(TensorRole::shared_weight, layer, {1, hidden});
}

// Calls add(role, layer, shape); these tensors are floats in every file.
template <class Add>
void add_expert_biases(const ModelConfig& c, bool gguf, std::uint32_t layer, Add add) {
  const std::uint64_t experts = c.num_experts;
  add(TensorRole::router_bias, layer, {experts});
  if (gguf) {
    add(TensorRole::expert_gate_bias, layer, {experts, c.expert_size});
    add(TensorRole::expert_up_bias, layer, {experts, c.expert_size});
  } else {
    add(TensorRole::expert_gate_bias, layer, {experts, 2 * std::uint64_t{c.expert_size}});
  }
  add(TensorRole::expert_down_bias, layer, {experts, c.hidden_size});
}

// Calls add(role, layer, shape) and vector(present, role, layer, size). GGUF separates the K and V projections of latents.
template <class Add, class Vector>
void add_latents(const ModelConfig& c, bool gguf, std::uint32_t layer, Add add, Vector vector) {
  const std::uint64_t heads = c.num_heads, rank = c.latent.kv_rank, hidden = c.hidden_size;
  const std::uint64_t keys = c.latent.key_dim, values = c.latent.value_dim, queries = heads * (keys + c.rotary_dim);
  add(TensorRole::kv_a, layer, {c.head_dim, hidden});
  vector(true, TensorRole::kv_a_norm, layer, {rank});
  vector(c.latent.q_rank > 0, TensorRole::q_a_norm, layer, {c.latent.q_rank});
  if (c.latent.q_rank > 0) {
    add(TensorRole::q_a, layer, {c.latent.q_rank, hidden});
    add(TensorRole::q_b, layer, {queries, c.latent.q_rank});
  } else {
    add(TensorRole::q, layer, {queries, hidden});
  }
  if (gguf) {
    add(TensorRole::k_b, layer, {heads, rank, keys});
    add(TensorRole::v_b, layer, {heads, values, rank});
  } else {
    add(TensorRole::kv_b, layer, {heads * (keys + values), rank});
  }
}

// Adds gpt-oss's published format: blocks of a stack of matrices and their scales, from one draw of 17 bytes per block.
inline void add_blocks(const std::string& name, std::uint64_t experts, std::uint64_t inputs, std::uint64_t outputs,
                       std::vector<Tensor>& out) {
  const Tensor drawn = make_tensor(name, GgmlType::mxfp4, {experts, outputs, inputs});
  Tensor blocks{name + "_blocks", GgmlType::f32, {experts, outputs, inputs / 32, 16}, {}, "U8"};
  Tensor scales{name + "_scales", GgmlType::f32, {experts, outputs, inputs / 32}, {}, "U8"};
  for (std::size_t at = 0; at < drawn.bytes.size(); at += 17) {
    scales.bytes += drawn.bytes[at];
    blocks.bytes += drawn.bytes.substr(at + 1, 16);
  }
  out.push_back(std::move(blocks));
  out.push_back(std::move(scales));
}

template <class Tensors, class Matrix, class Vector>
void add_attention(const ModelConfig& c, bool gguf, std::uint32_t i, Tensors tensor, Matrix matrix, Vector vector) {
  const bool whole = c.qk_norm == QkNorm::whole;
  if (c.latent.kv_rank > 0) {
    add_latents(c, gguf, i, tensor, vector);
  } else if (c.fused_qkv) {
    matrix(TensorRole::qkv, i, c.q_size() + 2 * c.kv_size(), c.hidden_size);
  } else {
    matrix(TensorRole::q, i, (c.gated_attention ? 2 : 1) * c.q_size(), c.hidden_size);
    matrix(TensorRole::k, i, c.kv_size(), c.hidden_size);
    matrix(TensorRole::v, i, c.kv_size(), c.hidden_size);
  }
  matrix(TensorRole::attn_output, i, c.hidden_size, c.attended_size());
  vector(c.qkv_bias, TensorRole::q_bias, i, {c.q_size()});
  vector(c.qkv_bias, TensorRole::k_bias, i, {c.kv_size()});
  vector(c.qkv_bias, TensorRole::v_bias, i, {c.kv_size()});
  vector(c.output_bias, TensorRole::attn_output_bias, i, {c.hidden_size});
  vector(c.attention_sinks, TensorRole::sinks, i, {c.num_heads});
  vector(c.qk_norm != QkNorm::none, TensorRole::q_norm, i, {whole ? c.q_size() : c.head_dim});
  vector(c.qk_norm != QkNorm::none, TensorRole::k_norm, i, {whole ? c.kv_size() : c.head_dim});
}

// Convolutions are small and floats in every file; conv(shape) adds them.
template <class Matrix, class Vector, class Conv>
void add_state(const ModelConfig& c, bool gguf, std::uint32_t i, Matrix matrix, Vector vector, Conv conv) {
  const StateShape& state = c.state;
  if (gguf && state.kind == StateKind::gated_delta) {
    matrix(TensorRole::qkv, i, c.conv_channels(), c.hidden_size);
    matrix(TensorRole::state_gate, i, c.state_output_size(), c.hidden_size);
  } else {
    matrix(TensorRole::state_input, i, c.state_input_size(), c.hidden_size);
  }
  matrix(TensorRole::state_output, i, c.hidden_size, c.state_output_size());
  gguf ? conv({c.conv_channels(), state.conv_taps}) : conv({c.conv_channels(), 1, state.conv_taps});
  vector(state.input_bias, TensorRole::state_input_bias, i, {c.state_input_size()});
  vector(state.conv_bias, TensorRole::conv_bias, i, {c.conv_channels()});
  vector(state.output_bias, TensorRole::state_output_bias, i, {c.hidden_size});
  if (state.kind == StateKind::short_conv) return;
  vector(true, TensorRole::step_bias, i, {state.heads});
  const std::vector<std::uint64_t> by_head = gguf ? std::vector<std::uint64_t>{state.heads, 1} : std::vector<std::uint64_t>{state.heads};
  vector(true, TensorRole::state_decay, i, by_head);
  if (state.kind == StateKind::gated_delta) {
    matrix(TensorRole::state_rates, i, 2 * std::uint64_t{state.heads}, c.hidden_size);
    vector(true, TensorRole::state_norm, i, {state.head_dim});
    return;
  }
  vector(true, TensorRole::state_skip, i, by_head);
  const std::uint64_t groups = state.norm_groups, width = c.state_output_size();
  vector(state.has_norm, TensorRole::state_norm, i,
         gguf ? std::vector<std::uint64_t>{groups, width / groups} : std::vector<std::uint64_t>{width});
}

// Makes every tensor of the decoder, with all matrices of one kind. In a folder "MXFP4" applies to experts alone.
inline std::vector<Tensor> make_tensors(const ModelConfig& c, bool gguf, std::string_view kind_of_experts) {
  std::vector<Tensor> out;
  const bool has_blocks = !gguf && kind_of_experts == "MXFP4";
  const std::string_view kind = has_blocks ? "BF16" : kind_of_experts;
  const auto name_of = [&](TensorRole role, std::uint32_t layer, std::uint32_t expert) {
    const std::uint32_t block = block_of(role, layer, c);
    return gguf ? gguf_tensor_name(role, block, c.tensor_names) : hf_tensor_name(role, block, expert, c.tensor_names);
  };
  const auto tensor = [&](TensorRole role, std::uint32_t layer, std::vector<std::uint64_t> shape, std::uint32_t expert = 0) {
    if (has_blocks && (role == TensorRole::transposed_gate_up || role == TensorRole::transposed_down))
      return add_blocks(hf_tensor_name(role, layer), shape[0], shape[1], shape[2], out);
    const GgmlType type = matrix_type(kind, gguf_tensor_name(role, block_of(role, layer, c), c.tensor_names));
    out.push_back(make_tensor(name_of(role, layer, expert), type, std::move(shape)));
  };
  const auto matrix = [&](TensorRole role, std::uint32_t layer, std::uint64_t rows, std::uint64_t columns) {
    tensor(role, layer, {rows, columns});
  };
  const auto vector = [&](bool present, TensorRole role, std::uint32_t layer, std::vector<std::uint64_t> shape) {
    if (!present) return;
    out.push_back(make_tensor(name_of(role, layer, 0), gguf ? GgmlType::f32 : type_named(kind), std::move(shape)));
  };
  matrix(TensorRole::token_embedding, 0, c.vocab_size, c.hidden_size);
  vector(true, TensorRole::output_norm, 0, {c.hidden_size});
  if (!c.tied_embeddings) matrix(TensorRole::output, 0, c.vocab_size, c.hidden_size);
  for (std::uint32_t i = 0; i < c.num_layers; ++i) {
    vector(c.pre_norms, TensorRole::attn_norm, i, {c.hidden_size});
    const bool is_next = gguf && c.state.kind == StateKind::gated_delta;
    const bool has_feed_forward = c.layer(i).has_feed_forward;
    vector(c.pre_norms && has_feed_forward, is_next ? TensorRole::attn_post_norm : ffn_norm_role(c), i, {c.hidden_size});
    vector(c.post_norms, TensorRole::attn_post_norm, i, {c.hidden_size});
    vector(c.post_norms, TensorRole::ffn_post_norm, i, {c.hidden_size});
    if (c.layer(i).memory != LayerMemory::attention)
      add_state(c, gguf, i, matrix, vector, [&](std::vector<std::uint64_t> shape) {
        out.push_back(make_tensor(name_of(TensorRole::conv, i, 0), gguf ? GgmlType::f32 : type_named(kind), std::move(shape)));
      });
    const bool attends = c.layer(i).memory != LayerMemory::state;
    if (attends) add_attention(c, gguf, i, tensor, matrix, vector);
    if (!has_feed_forward) continue;
    const bool is_gated = has_gate(c.activation);
    if (c.layer(i).num_experts > 0) {
      add_experts(c, gguf, i, tensor);
      if (c.expert_bias)
        add_expert_biases(c, gguf, i, [&](TensorRole role, std::uint32_t layer, std::vector<std::uint64_t> shape) {
          vector(true, role, layer, std::move(shape));
        });
      std::vector<std::uint64_t> experts = {c.num_experts};
      if (!gguf && c.expert_tensors == ExpertTensors::separate_shared && c.expert_sum_floor > 0.0F) experts.insert(experts.begin(), 1);
      if (c.expert_choice_bias) out.push_back(make_tensor(name_of(TensorRole::choice_bias, i, 0), GgmlType::f32, std::move(experts)));
    } else if (c.fused_gate_up && !(gguf && c.tensor_names == &kGraniteNames)) {
      matrix(TensorRole::gate_up, i, 2 * c.intermediate_size, c.hidden_size);
    } else {
      if (is_gated) matrix(TensorRole::gate, i, c.intermediate_size, c.hidden_size);
      matrix(TensorRole::up, i, c.intermediate_size, c.hidden_size);
    }
    if (c.layer(i).num_experts == 0) matrix(TensorRole::down, i, c.hidden_size, c.intermediate_size);
    vector(c.mlp_bias && is_gated, TensorRole::gate_bias, i, {c.intermediate_size});
    vector(c.mlp_bias, TensorRole::up_bias, i, {c.intermediate_size});
    vector(c.mlp_bias, TensorRole::down_bias, i, {c.hidden_size});
  }
  if (gguf && c.rope_scaling == RopeScaling::longrope) {
    out.push_back(factor_tensor(TensorRole::rope_short_factors, c.rope_short_factors));
    out.push_back(factor_tensor(TensorRole::rope_long_factors, c.rope_long_factors));
  }
  return out;
}

// The metadata of a GGUF file, in order.
class GgufHeader {
 public:
  void add(const std::string& key, const char* value) { add(key, std::string(value)); }
  void add(const std::string& key, const std::string& value) {
    add_key(key, 8);
    append_string(bytes_, value);
  }
  void add(const std::string& key, std::uint32_t value) {
    add_key(key, 4);
    append(bytes_, value);
  }
  void add(const std::string& key, float value) {
    add_key(key, 6);
    append(bytes_, value);
  }

  void add(const std::string& key, bool value) {
    add_key(key, 7);
    append(bytes_, value);
  }

  void add(const std::string& key, const std::vector<bool>& values) {
    add_key(key, 9);
    append(bytes_, std::uint32_t{7});
    append(bytes_, std::uint64_t{values.size()});
    for (const bool value : values) append(bytes_, value);
  }

  void add(const std::string& key, const std::vector<std::uint32_t>& values) {
    add_key(key, 9);
    append(bytes_, std::uint32_t{4});
    append(bytes_, std::uint64_t{values.size()});
    for (const std::uint32_t value : values) append(bytes_, value);
  }

  void add(const std::string& key, const std::vector<float>& values) {
    add_key(key, 9);
    append(bytes_, std::uint32_t{6});
    append(bytes_, std::uint64_t{values.size()});
    for (const float value : values) append(bytes_, value);
  }

  void add(const std::string& key, const std::vector<std::string>& values) {
    add_key(key, 9);
    append(bytes_, std::uint32_t{8});
    append(bytes_, std::uint64_t{values.size()});
    for (const std::string& value : values) append_string(bytes_, value);
  }

  [[nodiscard]] std::string file(const std::vector<Tensor>& tensors) const {
    std::string out = "GGUF";
    append(out, std::uint32_t{3});
    append(out, std::uint64_t{tensors.size()});
    append(out, count_);
    out += bytes_;
    std::string data;
    for (const Tensor& tensor : tensors) {
      append_string(out, tensor.name);
      append(out, static_cast<std::uint32_t>(tensor.shape.size()));
      for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size) append(out, *size);
      append(out, static_cast<std::uint32_t>(tensor.type));
      append(out, std::uint64_t{data.size()});
      data += tensor.bytes;
      data.resize((data.size() + 31) / 32 * 32);
    }
    out.resize((out.size() + 31) / 32 * 32);
    return out + data;
  }

 private:
  static void append_string(std::string& out, const std::string& text) {
    append(out, std::uint64_t{text.size()});
    out += text;
  }
  void add_key(const std::string& key, std::uint32_t type) {
    append_string(bytes_, key);
    append(bytes_, type);
    ++count_;
  }

  std::string bytes_;
  std::uint64_t count_ = 0;
};

// Adds the keys of DeepSeek's files and of other files with its router.
inline void add_router_keys(const ModelConfig& c, const std::string& prefix, GgufHeader& header) {
  const auto leading = std::ranges::find(c.dense_layers, false) - c.dense_layers.begin();
  header.add(prefix + "leading_dense_block_count", static_cast<std::uint32_t>(leading));
  if (std::ranges::count(c.dense_layers, true) > leading) header.add(prefix + "interleave_moe_layer_step", 2U);
  header.add(prefix + "expert_gating_func", c.expert_scoring == ExpertScoring::sigmoid ? 2U : 1U);
  header.add(prefix + "expert_weights_norm", c.normalize_experts);
  header.add(prefix + "expert_weights_scale", c.expert_scale);
  header.add(prefix + "expert_group_count", std::max(c.num_expert_groups, 1U));
  header.add(prefix + "expert_group_used_count", std::max(c.groups_per_token, 1U));
}

inline void add_latent_keys(const ModelConfig& c, const std::string& prefix, GgufHeader& header) {
  header.add(prefix + "attention.kv_lora_rank", c.latent.kv_rank);
  if (c.latent.q_rank > 0) header.add(prefix + "attention.q_lora_rank", c.latent.q_rank);
  header.add(prefix + "attention.key_length_mla", c.latent.key_dim + c.rotary_dim);
  header.add(prefix + "attention.value_length_mla", c.latent.value_dim);
  const double usual = 1.0 / std::sqrt(static_cast<double>(c.latent.key_dim + c.rotary_dim));
  if (c.rope_scaling == RopeScaling::yarn)
    header.add(prefix + "rope.scaling.yarn_log_multiplier",
               static_cast<float>((std::sqrt(c.attention_scale / usual) - 1.0) / std::log(c.rope_factor)));
}

// Nemotron-H has lists with an entry for each block.
inline void add_block_keys(const ModelConfig& c, const std::string& prefix, GgufHeader& header) {
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < c.num_layers; ++i) {
    count = std::max(count, c.mixer_blocks[i] + 1);
    if (c.layer(i).has_feed_forward) count = std::max(count, c.feed_forward_blocks[i] + 1);
  }
  std::vector<std::uint32_t> heads(count, 0), widths(count, 0);
  for (std::uint32_t i = 0; i < c.num_layers; ++i) {
    if (c.layer_memories[i] == LayerMemory::attention) heads[c.mixer_blocks[i]] = c.num_kv_heads;
    if (c.layer(i).has_feed_forward) widths[c.feed_forward_blocks[i]] = c.layer(i).num_experts > 0 ? c.expert_size : c.intermediate_size;
  }
  header.add(prefix + "block_count", count);
  header.add(prefix + "attention.head_count_kv", heads);
  header.add(prefix + "feed_forward_length", widths);
}

// llama.cpp's name of the architecture, whose files may be described by the row of another family.
inline std::string gguf_architecture(const ModelConfig& c) {
  const ModelFamily* const family = find_hf_family(c.architecture);
  if (family == nullptr) return c.architecture;
  const auto& names = family->gguf.names;
  if (!names[0].empty()) return std::string(names[!c.mixer_blocks.empty() && c.num_experts > 0 ? 1 : 0]);
  for (const auto& [name, file] :
       {std::pair("deepseek_v3", "deepseek2"), {"olmo2", "olmo2"}, {"bamba", "granitehybrid"}, {"qwen2_5_vl", "qwen2vl"}})
    if (family->hf.name == name) return file;
  return "llama";
}

// latents_are_joined: like files from before kv_b was split.
inline GgufHeader gguf_header(const ModelConfig& c, bool latents_are_joined = false) {
  GgufHeader header;
  const std::string architecture = gguf_architecture(c);
  const bool has_own_blocks = !c.mixer_blocks.empty();
  const std::string prefix = architecture + ".";
  header.add("general.architecture", architecture);
  header.add("general.name", "tiny " + c.architecture);
  if (!has_own_blocks) header.add(prefix + "block_count", c.num_layers);
  header.add(prefix + "context_length", c.context_length);
  header.add(prefix + "embedding_length", c.hidden_size);
  if (has_own_blocks)
    add_block_keys(c, prefix, header);
  else
    header.add(prefix + "feed_forward_length", c.intermediate_size);
  header.add(prefix + "attention.head_count", c.num_heads);
  const bool is_delta = c.state.kind == StateKind::gated_delta;
  if (has_own_blocks) {
    // add_block_keys() has added the key as a list with an entry per block.
  } else if (is_delta || std::ranges::find(c.layer_memories, LayerMemory::state) == c.layer_memories.end()) {
    header.add(prefix + "attention.head_count_kv", c.num_kv_heads);
  } else {
    std::vector<std::uint32_t> heads;
    for (const LayerMemory memory : c.layer_memories) heads.push_back(memory == LayerMemory::state ? 0 : c.num_kv_heads);
    header.add(prefix + "attention.head_count_kv", heads);
  }
  if (c.state.kind == StateKind::short_conv) header.add(prefix + "shortconv.l_cache", c.state.conv_taps);
  if (c.state.kind == StateKind::mamba2 || is_delta) {
    header.add(prefix + "ssm.conv_kernel", c.state.conv_taps);
    header.add(prefix + "ssm.inner_size", c.state_output_size());
    header.add(prefix + "ssm.state_size", c.state.size);
    header.add(prefix + "ssm.time_step_rank", c.state.heads);
    header.add(prefix + "ssm.group_count", c.state.groups);
    header.add(prefix + "rope.scaling.finetuned", c.nope_layer_interval != 1);
  }
  const LatentShape& latent = c.latent;
  header.add(prefix + "attention.key_length", latents_are_joined ? latent.key_dim + c.rotary_dim : c.head_dim);
  header.add(prefix + "attention.value_length", latents_are_joined ? latent.value_dim : latent.kv_rank > 0 ? latent.kv_rank : c.head_dim);
  if (c.latent.kv_rank > 0) add_latent_keys(c, prefix, header);
  if (c.expert_tensors == ExpertTensors::separate_shared || architecture == "lfm2moe") add_router_keys(c, prefix, header);
  header.add(prefix + "attention.layer_norm_rms_epsilon", c.norm_epsilon);
  header.add(prefix + "rope.freq_base", static_cast<float>(c.rope_theta));
  if (c.rope_scaling == RopeScaling::linear) {
    header.add(prefix + "rope.scaling.type", "linear");
    header.add(prefix + "rope.scaling.factor", static_cast<float>(c.rope_factor));
  }
  if (c.rope_scaling == RopeScaling::yarn) {
    header.add(prefix + "rope.scaling.type", "yarn");
    header.add(prefix + "rope.scaling.factor", static_cast<float>(c.rope_factor));
    header.add(prefix + "rope.scaling.original_context_length", static_cast<std::uint32_t>(c.rope_original_context));
    if (architecture == "olmo2") header.add(prefix + "rope.scaling.attn_factor", c.rope_attention_factor);
  }
  if (c.rope_scaling == RopeScaling::longrope) {
    header.add(prefix + "rope.scaling.original_context_length", static_cast<std::uint32_t>(c.rope_original_context));
    header.add(prefix + "rope.scaling.attn_factor", c.rope_attention_factor);
  }
  if (c.rotary_dim != c.head_dim) header.add(prefix + "rope.dimension_count", c.rotary_dim);
  if (c.num_experts > 0) {
    header.add(prefix + "expert_count", c.num_experts);
    header.add(prefix + "expert_used_count", c.experts_per_token);
  }
  if (architecture.starts_with("granite")) {
    header.add(prefix + "attention.scale", c.attention_scale);
    header.add(prefix + "embedding_scale", c.embedding_scale);
    header.add(prefix + "residual_scale", c.residual_scale);
    header.add(prefix + "logit_scale", c.logit_divisor);
  }
  for (const std::uint32_t window : c.sliding_windows)
    if (window > 0) {
      header.add(prefix + "attention.sliding_window", window);
      break;
    }
  if (c.attention_soft_cap > 0.0F) header.add(prefix + "attn_logit_softcapping", c.attention_soft_cap);
  if (c.logit_soft_cap > 0.0F) header.add(prefix + "final_logit_softcapping", c.logit_soft_cap);
  return header;
}

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  QUIRE_CHECK(out.good(), "cannot write");
}

inline std::string safetensors_file(const std::vector<Tensor>& tensors) {
  std::string header = "{";
  std::string data;
  for (const Tensor& tensor : tensors) {
    std::string shape;
    for (const std::uint64_t size : tensor.shape) shape += (shape.empty() ? "" : ",") + std::to_string(size);
    header += (data.empty() ? "\"" : ",\"") + tensor.name + "\":{\"dtype\":\"" +
              (tensor.dtype.empty() ? std::string(ggml_type_name(tensor.type)) : tensor.dtype) + "\",\"shape\":[" + shape +
              "],\"data_offsets\":[" + std::to_string(data.size()) + "," + std::to_string(data.size() + tensor.bytes.size()) + "]}";
    data += tensor.bytes;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string out;
  append(out, std::uint64_t{header.size()});
  return out + header + data;
}

inline void write_hf_folder(const std::string& folder, const boost::json::value& config, const std::vector<Tensor>& tensors) {
  std::filesystem::create_directories(folder);
  write_file(folder + "/config.json", boost::json::serialize(config));
  write_file(folder + "/model.safetensors", safetensors_file(tensors));
}

inline void write_gguf(const std::string& path, const ModelConfig& config, std::string_view kind) {
  write_file(path, gguf_header(config).file(make_tensors(config, true, kind)));
}

}  // namespace quire::tiny
