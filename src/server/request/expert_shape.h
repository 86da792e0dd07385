#pragma once
#include <cstdint>

namespace quire {

// How many experts a token goes through, in how many layers.
struct ExpertShape {
  std::uint32_t num_layers = 0, per_layer = 0;
  std::uint32_t num_experts = 0;  // in each layer that has any

  [[nodiscard]] std::uint64_t per_token() const { return std::uint64_t{num_layers} * per_layer; }
};

}  // namespace quire
