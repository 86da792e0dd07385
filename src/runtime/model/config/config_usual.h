#pragma once
// What a decoder's config may leave out where it is a part of a model that takes images: it is as in its class of transformers.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace quire {

struct UsualShape {
  std::string_view name;
  std::uint32_t num_layers, hidden_size, intermediate_size, num_heads, num_kv_heads, vocab_size, context_length;
};

inline constexpr std::array kUsualShapes{
    UsualShape{"llama", 32, 4096, 11008, 32, 0, 32000, 2048}, UsualShape{"mistral", 32, 4096, 14336, 32, 8, 32000, 131072},
    UsualShape{"qwen2", 32, 4096, 22016, 32, 32, 151936, 32768}, UsualShape{"gemma3", 26, 2304, 9216, 8, 4, 262208, 131072}};

// 0 heads for keys and values: as many as heads. Null: all of it must be there.
inline const UsualShape* usual_shape(std::string_view architecture) {
  const auto* const found = std::ranges::find(kUsualShapes, architecture, &UsualShape::name);
  return found == kUsualShapes.end() ? nullptr : found;
}

}  // namespace quire
