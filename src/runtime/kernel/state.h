#pragma once
// Recurrences: a layer with a state processes the tokens of one request one after the other.
//
// Each channel is computed separately, with operations in an order that depends only on its tokens. Any split of the tokens into calls
// gives the same bits, if each call begins with the final state of the previous call.
#include <cstddef>
#include <cstdint>

namespace quire {

inline constexpr std::uint32_t kMaxConvTaps = 8;

// A causal convolution of each channel over its last `taps` inputs: out = bias + w[0] * oldest + ... + w[taps - 1] * current, with fused
// multiply-adds in this order, then silu if requested.
struct ConvRun {
  const float* x = nullptr;  // [row][channel]
  std::size_t x_stride = 0;
  float* out = nullptr;  // [row][channel]; may be x, with its stride
  std::size_t out_stride = 0;
  const float* weights = nullptr;  // [taps][channels], oldest input first
  const float* bias = nullptr;     // [channels]; null: none
  const float* before = nullptr;   // [taps - 1][channels]: the inputs before the first row, the oldest first; null: zeros
  float* after = nullptr;          // [taps - 1][channels]: the inputs before the row after the last one; may be `before`
  std::size_t channels = 0;        // channels of the layer
  std::uint32_t rows = 0;
  std::uint32_t taps = 0;  // 2 to kMaxConvTaps
  bool silu = false;
};

// Number of values of a head that a scan processes together. Each value has a separate state.
inline constexpr std::uint32_t kScanLanes = 16;

// A selective scan (Mamba-2) of kScanLanes values of one head. For each value:
//   state[n] = decay * state[n] + b[n] * (step * x), then y = c[0] * state[0] + c[1] * state[1] + ... + skip * x.
// The products with decay, c and skip are fused with the additions, in this order.
struct ScanRun {
  const float* x = nullptr;  // [row][lane]
  float* y = nullptr;        // [row][lane]; may be x
  std::size_t stride = 0;    // of x and y
  const float* b = nullptr;  // [row][size]
  const float* c = nullptr;  // [row][size]
  std::size_t group_stride = 0;
  const float* steps = nullptr;   // [row]
  const float* decays = nullptr;  // [row]
  std::size_t step_stride = 0, decay_stride = 0;
  const float* before = nullptr;  // [size][lane]: the state before the first row; null: zeros
  float* after = nullptr;         // [size][lane]: the state after the last row; may be `before`
  float skip = 0.0F;
  std::uint32_t size = 0;  // number of floats in the state of a value
  std::uint32_t rows = 0;
};

// Run of a gated delta rule over kScanLanes values of one head. For each value:
//   missing = v - decay * sum of state[n] * key[n]; state[n] = decay * state[n] + key[n] * (rate * missing);
//   y = sum of state[n] * query[n].
// Each sum uses four chains of fused multiply-adds, one for each n % 4, joined as (0 + 1) + (2 + 3).
struct DeltaRun {
  const float* v = nullptr;        // [row][lane]
  float* y = nullptr;              // [row][lane]; may be v
  std::size_t stride = 0;          // of v and y
  const float* queries = nullptr;  // [row][size]
  const float* keys = nullptr;     // [row][size]
  std::size_t group_stride = 0;
  const float* decays = nullptr;  // [row]
  const float* rates = nullptr;   // [row]
  std::size_t rate_stride = 0;
  const float* before = nullptr;  // [size][lane]: the state before the first row; null: zeros
  float* after = nullptr;         // [size][lane]: the state after the last row; may be `before`
  std::uint32_t size = 0;         // number of floats in a key, a multiple of 4
  std::uint32_t rows = 0;
};

}  // namespace quire
