#pragma once
// Recurrences: what a layer with a state makes of the tokens of one request, one after the other.
//
// Each channel is a chain of its own, whose operations and their order depend on its tokens alone: the bits are the same however the tokens
// are cut into calls, if each call begins with what the one before it has left.
#include <cstddef>
#include <cstdint>

namespace quire {

inline constexpr std::uint32_t kMaxConvTaps = 8;

// A causal convolution of each channel over its last `taps` inputs: out = bias + w[0] * oldest + ... + w[taps - 1] * current, a chain of
// fused multiply-adds in this order; then silu, if asked for.
struct ConvRun {
  const float* x = nullptr;  // [row][channel]
  std::size_t x_stride = 0;
  float* out = nullptr;  // [row][channel]; may be x, with its stride
  std::size_t out_stride = 0;
  const float* weights = nullptr;  // [taps][channels], of the oldest input first
  const float* bias = nullptr;     // [channels]; null: none
  const float* before = nullptr;   // [taps - 1][channels]: the inputs before the first row, the oldest first; null: zeros
  float* after = nullptr;          // the same behind the last row; may be `before`
  std::size_t channels = 0;        // of the layer
  std::uint32_t rows = 0;
  std::uint32_t taps = 0;  // 2 to kMaxConvTaps
  bool silu = false;
};

}  // namespace quire
