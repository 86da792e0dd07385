// Translates tensor names of an mmproj file to the names in a Hugging Face folder.
#include <fmt/format.h>

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/model/weights/mmproj.h"

namespace quire {
namespace {

using Renamed = std::pair<std::string_view, std::string_view>;

// Replaces the prefix of the name with the first matching entry of the list; nullopt if no entry matches.
std::optional<std::string> renamed(std::string_view name, std::span<const Renamed> list) {
  for (const auto& [from, to] : list)
    if (name.starts_with(from)) return fmt::format("{}{}", to, name.substr(from.size()));
  return std::nullopt;
}

struct BlockKey {
  std::string_view layer, part;
};

std::optional<BlockKey> block_name(std::string_view name) {
  constexpr std::string_view kBlock = "v.blk.";
  const std::size_t dot = name.find('.', kBlock.size());
  if (!name.starts_with(kBlock) || dot == std::string_view::npos) return std::nullopt;
  return BlockKey{name.substr(kBlock.size(), dot - kBlock.size()), name.substr(dot + 1)};
}

std::optional<std::string> siglip_name(std::string_view name, std::string_view tower) {
  constexpr std::array<Renamed, 3> kOutside{{{"mm.model.fc.weight", "connector.modality_projection.proj.weight"},
                                             {"mm.input_projection.weight", "multi_modal_projector.mm_input_projection_weight"},
                                             {"mm.soft_emb_norm.weight", "multi_modal_projector.mm_soft_emb_norm.weight"}}};
  constexpr std::array<Renamed, 3> kInside{{{"v.position_embd.weight", "embeddings.position_embedding.weight"},
                                            {"v.patch_embd.", "embeddings.patch_embedding."},
                                            {"v.post_ln.", "post_layernorm."}}};
  constexpr std::array<Renamed, 8> kOfLayer{{{"ln1.", "layer_norm1."},
                                             {"ln2.", "layer_norm2."},
                                             {"attn_q.", "self_attn.q_proj."},
                                             {"attn_k.", "self_attn.k_proj."},
                                             {"attn_v.", "self_attn.v_proj."},
                                             {"attn_out.", "self_attn.out_proj."},
                                             {"ffn_up.", "mlp.fc1."},
                                             {"ffn_down.", "mlp.fc2."}}};
  if (auto outside = renamed(name, kOutside)) return outside;
  if (const auto inside = renamed(name, kInside)) return fmt::format("{}{}", tower, *inside);
  const auto block = block_name(name);
  const auto part = block ? renamed(block->part, kOfLayer) : std::nullopt;
  return part ? std::optional(fmt::format("{}encoder.layers.{}.{}", tower, block->layer, *part)) : std::nullopt;
}

// Returns the name of a Qwen tensor. llama.cpp's converter splits the matrix of queries, keys and values into three, and the convolution
// over frames into one matrix per frame.
std::optional<std::string> qwen_name(std::string_view name, std::uint64_t outputs, const VisionConfig& vision) {
  constexpr std::array<Renamed, 5> kWhole{{{"v.patch_embd.weight.1", "patch_embed.1.weight"},
                                           {"v.patch_embd.weight", "patch_embed.0.weight"},
                                           {"v.post_ln.", "merger.ln_q."},
                                           {"mm.0.", "merger.mlp.0."},
                                           {"mm.2.", "merger.mlp.2."}}};
  constexpr std::array<Renamed, 7> kOfLayer{{{"ln1.", "norm1."},
                                             {"ln2.", "norm2."},
                                             {"attn_q.", "attn.q."},
                                             {"attn_k.", "attn.k."},
                                             {"attn_v.", "attn.v."},
                                             {"attn_out.", "attn.proj."},
                                             {"ffn_gate.", "mlp.gate_proj."}}};
  if (const auto whole = renamed(name, kWhole)) return fmt::format("visual.{}", *whole);
  const auto block = block_name(name);
  if (!block) return std::nullopt;
  auto part = renamed(block->part, kOfLayer);
  if (!part && (block->part.starts_with("ffn_up.") || block->part.starts_with("ffn_down."))) {
    // Files of 2024 and early 2025 name the first product `down`.
    const bool is_same = vision.intermediate_size == vision.hidden_size;
    const bool is_first = is_same ? block->part.starts_with("ffn_up.") : outputs == vision.intermediate_size;
    const std::string_view product = vision.is_gated ? (is_first ? "up_proj" : "down_proj") : (is_first ? "fc1" : "fc2");
    part = fmt::format("mlp.{}{}", product, block->part.substr(block->part.find('.')));
  }
  return part ? std::optional(fmt::format("visual.blocks.{}.{}", block->layer, *part)) : std::nullopt;
}

}  // namespace

std::string folder_name_of(const GgufTensor& tensor, const VisionConfig& vision) {
  const std::uint64_t outputs = tensor.num_dims < 2 ? tensor.columns() : tensor.rows();
  return (vision.has_grid_positions ? qwen_name(tensor.name, outputs, vision) : siglip_name(tensor.name, vision.tower))
      .value_or(std::string(tensor.name));
}

}  // namespace quire
