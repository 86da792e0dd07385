#pragma once
// The arithmetic of a decoder: a table of functions, with one implementation per instruction set.
//
// Every kernel sums each row in an order that depends only on the row, not on the batch, the chunking or the number of threads. All
// implementations of a numeric contract compute the same bits (fused multiply-add where the contract says fma). The functions start no
// thread and allocate no memory. Concurrent calls may write disjoint outputs.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "quire/base/error.h"
#include "quire/base/options.h"
#include "runtime/kernel/attention.h"
#include "runtime/kernel/elementwise.h"
#include "runtime/kernel/matmul.h"
#include "runtime/kernel/pack.h"
#include "runtime/kernel/state.h"

namespace quire {

// Filled once per instruction set (tables.cpp of cpu/x86 and cpu/arm, kernel.cpp) and never changed. All pointers are set.
struct Kernels {
  const char* name = "";

  // Prepares groups [group_begin, group_end) of 32 inputs in rows [row_begin, row_end): writes codes in an integer mode, and rounded inputs
  // in bf16 mode. Does nothing in f32 mode.
  void (*prepare_groups)(const Activations& x, std::uint32_t row_begin, std::uint32_t row_end, std::uint32_t group_begin,
                         std::uint32_t group_end) = nullptr;
  void prepare(const Activations& x, std::uint32_t row_begin, std::uint32_t row_end) const {
    prepare_groups(x, row_begin, row_end, 0, x.columns / kGroupColumns);
  }

  // Computes y[row][n] for every row of x and the outputs n of panels [panel_begin, panel_end), 16 outputs each. y_stride is in floats, and
  // x.columns must equal w.columns. Any split of the panels over threads gives the same bits.
  void (*matmul)(const PackedMatrix& w, const Activations& x, float* y, std::size_t y_stride, std::uint32_t panel_begin,
                 std::uint32_t panel_end) = nullptr;

  // Computes the outputs of panels [panel_begin, panel_end) of each row; w is f32 or bf16.
  void (*multiply_rows)(const PackedMatrix& w, const RowProduct& product, std::uint32_t panel_begin, std::uint32_t panel_end) = nullptr;

  // Writes rows of k and v ([row][kv_head][head_dim], stride in floats) to the cache; bf16 is rounded to nearest even. slots[row] = block *
  // block_size + offset in the block. A row with a negative slot is skipped, because another rank stores it.
  void (*write_kv)(const PagedKvLayer& layer, const float* k, const float* v, std::size_t stride,
                   std::span<const std::int64_t> slots) = nullptr;

  void (*attend)(const PagedKvLayer& layer, const AttentionItem& item, std::span<std::byte> scratch) = nullptr;
  // Joins the partials of an item into its output row. The partials must include all segments of the row.
  void (*join_segments)(const PagedKvLayer& layer, const AttentionItem& item) = nullptr;

  // Computes out = x * weight / sqrt(mean(x^2) + epsilon), over n values. Qwen3's q and k norms use it per head.
  void (*rms_norm)(const float* x, const float* weight, float epsilon, float* out, std::uint32_t n) = nullptr;

  // Rotates the first rotary_dim of every head of one row ([num_heads][head_dim]) in place; cosines and sines have rotary_dim / 2 entries.
  void (*rope)(RopeStyle style, float* x, std::uint32_t num_heads, std::uint32_t head_dim, std::uint32_t rotary_dim, const float* cosines,
               const float* sines) = nullptr;

  // Computes out = silu(gate) * up with silu(v) = v / (1 + exp(-v)); out may be gate or up.
  void (*silu_mul)(const float* gate, const float* up, float* out, std::uint32_t n) = nullptr;

  // Computes out = up / (1 + exp(-gate)); out may be gate or up.
  void (*sigmoid_mul)(const float* gate, const float* up, float* out, std::uint32_t n) = nullptr;

  // Computes out = gelu(gate) * up with the tanh approximation gelu(v) = v / (1 + exp(-2 sqrt(2 / pi) (v + 0.044715 v^3))). out may be gate
  // or up.
  void (*gelu_mul)(const float* gate, const float* up, float* out, std::uint32_t n) = nullptr;

  // Computes the gated unit of gpt-oss: out = (up' + 1) * gate' / (1 + exp(-1.702 gate')) with gate' = min(gate, limit) and up' =
  // max(min(up, limit), -limit). The result is NaN where gate or up is infinite. out may be gate or up.
  void (*swiglu_limited)(const float* gate, const float* up, float limit, float* out, std::uint32_t n) = nullptr;

  // Computes x = cap * tanh(x / cap), or NaN where x is infinite.
  void (*soft_cap)(float* x, float cap, std::uint32_t n) = nullptr;

  // Computes channels [begin, end) of a run. Any split of the channels over threads gives the same bits.
  void (*causal_conv)(const ConvRun& run, std::uint32_t begin, std::uint32_t end) = nullptr;

  void (*selective_scan)(const ScanRun& run) = nullptr;
  void (*delta_rule)(const DeltaRun& run) = nullptr;

  // Computes x *= y.
  void (*multiply)(float* x, const float* y, std::uint32_t n) = nullptr;
  // Computes x += y, for residuals and biases.
  void (*add)(float* x, const float* y, std::uint32_t n) = nullptr;
  // Computes x *= factor; a factor of 1 leaves x unchanged.
  void (*scale)(float* x, float factor, std::uint32_t n) = nullptr;
};

// All instruction sets except the reference. Within a processor family, the fastest comes first.
inline constexpr std::array kFastIsas{KernelIsa::amx,  KernelIsa::avx512_bf16, KernelIsa::avx512, KernelIsa::avx_vnni,
                                      KernelIsa::avx2, KernelIsa::neon_i8mm,   KernelIsa::neon};

// Returns the table of an instruction set, or `unsupported` if this build or this processor does not support it. The table is valid until
// the program ends.
Result<const Kernels*> find_kernels(KernelIsa isa);

// Like find_kernels(), for callers that have validated their options: ends the program if the instruction set is not available.
const Kernels& select_kernels(KernelIsa isa);

}  // namespace quire
