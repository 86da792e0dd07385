#pragma once
#include <cstdint>

namespace quire {

// The number of layers with experts, and the number of experts per token and layer.
struct ExpertShape {
  std::uint32_t num_layers = 0, per_layer = 0;
  std::uint32_t num_experts = 0;  // in each MoE layer

  [[nodiscard]] std::uint64_t per_token() const { return std::uint64_t{num_layers} * per_layer; }
};

}  // namespace quire
