#pragma once
// Arithmetic on single rows: norms, rotary embedding, activations. It is portable and has the same results for every instruction set. If a
// NaN or infinite input affects an output, the output is not finite. Input and output may be the same array. Spans of one call have equal
// lengths unless stated otherwise.
#include <cstdint>
#include <span>

namespace quire {

enum class RopeStyle : std::uint8_t {
  half_split,   // NeoX, Hugging Face: pairs (i, i + rotary_dim / 2)
  interleaved,  // original LLaMA, GGUF's permuted llama weights: pairs (2i, 2i + 1)
};

// Computes cos and sin of position * frequencies[i], in double. All spans have rotary_dim / 2 entries.
void rope_angles(std::uint32_t position, std::span<const float> frequencies, std::span<float> cosines, std::span<float> sines);

}  // namespace quire
