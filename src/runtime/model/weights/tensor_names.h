#pragma once
// The names of a decoder's tensors by their role, in GGUF files and Hugging Face folders. Pure functions, called while a model's headers
// are read. If a tensor is not found under its name, the error names the missing tensor.
#include <cstdint>
#include <string>

#include "runtime/model/config/model_config.h"
#include "runtime/model/config/tensor_role.h"

namespace quire {

// Returns whether each expert has separate matrices in the file.
constexpr bool are_separate(ExpertTensors tensors) {
  return tensors == ExpertTensors::separate || tensors == ExpertTensors::separate_in_block || tensors == ExpertTensors::separate_shared;
}

struct ExpertRoles {
  TensorRole router, gate, up, down;
};

constexpr ExpertRoles expert_roles(ExpertTensors tensors) {
  using enum TensorRole;
  switch (tensors) {
    case ExpertTensors::separate_in_block:
      return {block_router, block_expert_gate, block_expert_up, block_expert_down};
    case ExpertTensors::stacked_gate_up:
      return {stack_router, stack_gate_up, stack_gate_up, stack_down};
    case ExpertTensors::transposed:
      return {transposed_router, transposed_gate_up, transposed_gate_up, transposed_down};
    case ExpertTensors::separate:
    case ExpertTensors::separate_shared:
    case ExpertTensors::stacked:
      break;
  }
  return {router, expert_gate, expert_up, expert_down};
}

constexpr ExpertRoles shared_expert_roles(ExpertTensors tensors) {
  using enum TensorRole;
  if (tensors == ExpertTensors::separate_shared) return {router, other_shared_gate, other_shared_up, other_shared_down};
  return {router, shared_gate, shared_up, shared_down};
}

// Returns the role of the norm before the feed-forward part.
constexpr TensorRole ffn_norm_role(const LayerShape& shape) {
  if (shape.late_norm_name) return TensorRole::attn_post_norm;
  return shape.post_norms ? TensorRole::ffn_pre_norm : TensorRole::ffn_norm;
}

// Returns whether a role belongs to the feed-forward part.
constexpr bool is_feed_forward(TensorRole role) {
  return role >= TensorRole::ffn_norm && role <= TensorRole::shared_gate_up;
}

// Returns the number in the tensor's name (`blk.N`). The number differs from `layer` only in files that number mixers and feed-forward
// parts separately (Nemotron-H).
constexpr std::uint32_t block_of(TensorRole role, std::uint32_t layer, const ModelConfig& config) {
  if (config.mixer_blocks.empty()) return layer;
  return is_feed_forward(role) ? config.feed_forward_blocks[layer] : config.mixer_blocks[layer];
}

std::string gguf_tensor_name(TensorRole role, std::uint32_t layer, const TensorNames* names = nullptr);
// Returns the name in folders. The factors of RoPE have no name in folders: the result is empty. `expert` is used only if each expert has a
// separate matrix.
std::string hf_tensor_name(TensorRole role, std::uint32_t layer, std::uint32_t expert = 0, const TensorNames* names = nullptr);

}  // namespace quire
