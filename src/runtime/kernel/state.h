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

// Values of a head that a scan works on together, each with a state of its own.
inline constexpr std::uint32_t kScanLanes = 16;

// A selective scan (Mamba-2) of kScanLanes values of one head: of each value state[n] = decay * state[n] + b[n] * (step * x), then y = c[0]
// * state[0] + c[1] * state[1] + ... + skip * x; the products with decay, with c and with skip are fused with their sums, in this order.
struct ScanRun {
  const float* x = nullptr;  // [row][lane]
  float* y = nullptr;        // the same; may be x
  std::size_t stride = 0;    // of both
  const float* b = nullptr;  // [row][size]
  const float* c = nullptr;  // [row][size]
  std::size_t group_stride = 0;
  const float* steps = nullptr;   // [row]
  const float* decays = nullptr;  // [row]
  std::size_t step_stride = 0, decay_stride = 0;
  const float* before = nullptr;  // [size][lane]: the state before the first row; null: zeros
  float* after = nullptr;         // that behind the last one; may be `before`
  float skip = 0.0F;
  std::uint32_t size = 0;  // numbers of a value's state
  std::uint32_t rows = 0;
};

// A gated delta rule over kScanLanes values of one head. Of each value: state = decay * state, which then gives for the key what the
// token's value is to be; state[n] += key[n] * (rate * (v - what it gave)); y = what it gives for the query. What is given is added up in
// four chains of fused multiply-adds, one for each n % 4, joined as (0 + 1) + (2 + 3).
struct DeltaRun {
  const float* v = nullptr;        // [row][lane]
  float* y = nullptr;              // the same; may be v
  std::size_t stride = 0;          // of both
  const float* queries = nullptr;  // [row][size]
  const float* keys = nullptr;     // [row][size]
  std::size_t group_stride = 0;
  const float* decays = nullptr;  // [row]
  const float* rates = nullptr;   // [row]
  std::size_t rate_stride = 0;
  const float* before = nullptr;  // [size][lane]: the state before the first row; null: zeros
  float* after = nullptr;         // that behind the last one; may be `before`
  std::uint32_t size = 0;         // numbers of a key, a multiple of 4
  std::uint32_t rows = 0;
};

}  // namespace quire
