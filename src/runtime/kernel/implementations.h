#pragma once
// Declares the functions in the table of kernel.h, per instruction set. kernel.h states their contracts.
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/kernel/kernel.h"

#define QUIRE_DECLARE_KERNELS                                                                                                             \
  void prepare(const Activations& x, std::uint32_t row_begin, std::uint32_t row_end, std::uint32_t group_begin, std::uint32_t group_end); \
  void matmul(const PackedMatrix& w, const Activations& x, float* y, std::size_t y_stride, std::uint32_t begin, std::uint32_t end);       \
  void multiply_rows(const PackedMatrix& w, const RowProduct& product, std::uint32_t begin, std::uint32_t end);                           \
  void attend(const PagedKvLayer& layer, const AttentionItem& item, std::span<std::byte> scratch);                                        \
  void join_segments(const PagedKvLayer& layer, const AttentionItem& item);                                                               \
  void rms_norm(const float* x, const float* weight, float epsilon, float* out, std::uint32_t n);                                         \
  void silu_mul(const float* gate, const float* up, float* out, std::uint32_t n);                                                         \
  void gelu_mul(const float* gate, const float* up, float* out, std::uint32_t n);                                                         \
  void swiglu_limited(const float* gate, const float* up, float limit, float* out, std::uint32_t n);                                      \
  void soft_cap(float* x, float cap, std::uint32_t n);                                                                                    \
  void causal_conv(const ConvRun& run, std::uint32_t begin, std::uint32_t end);                                                           \
  void selective_scan(const ScanRun& run);                                                                                                \
  void delta_rule(const DeltaRun& run);                                                                                                   \
  void sigmoid_mul(const float* gate, const float* up, float* out, std::uint32_t n);

namespace quire::reference {
QUIRE_DECLARE_KERNELS
}
namespace quire::avx2 {
QUIRE_DECLARE_KERNELS
}
namespace quire::avx512 {
QUIRE_DECLARE_KERNELS
}
namespace quire::neon {
QUIRE_DECLARE_KERNELS
}
namespace quire::neon_i8mm {  // all other kernels are in quire::neon
void matmul(const PackedMatrix& w, const Activations& x, float* y, std::size_t y_stride, std::uint32_t begin, std::uint32_t end);
}
namespace quire::avx_vnni {  // all other kernels are in quire::avx2
void prepare(const Activations& x, std::uint32_t row_begin, std::uint32_t row_end, std::uint32_t group_begin, std::uint32_t group_end);
void matmul(const PackedMatrix& w, const Activations& x, float* y, std::size_t y_stride, std::uint32_t begin, std::uint32_t end);
}  // namespace quire::avx_vnni
namespace quire::avx512_bf16 {  // all other kernels are in quire::avx512
void prepare(const Activations& x, std::uint32_t row_begin, std::uint32_t row_end, std::uint32_t group_begin, std::uint32_t group_end);
void matmul(const PackedMatrix& w, const Activations& x, float* y, std::size_t y_stride, std::uint32_t begin, std::uint32_t end);
void attend(const PagedKvLayer& layer, const AttentionItem& item, std::span<std::byte> scratch);
}  // namespace quire::avx512_bf16
namespace quire::amx {  // all other kernels are in quire::avx512_bf16
void matmul(const PackedMatrix& w, const Activations& x, float* y, std::size_t y_stride, std::uint32_t begin, std::uint32_t end);
}
#undef QUIRE_DECLARE_KERNELS

namespace quire {

// Returns the kernel table of an instruction set in kFastIsas, or null if this build or this processor does not support it.
const Kernels* cpu_kernels(KernelIsa isa);

// The check functions end the program if a caller breaks a contract. They are compiled once, for the baseline instruction set.
void check_product(const PackedMatrix& w, const Activations& x, std::uint32_t panel_end);
void check_row_product(const PackedMatrix& w, std::uint32_t panel_end);
void check_attention(const PagedKvLayer& layer, const AttentionItem& item, std::size_t scratch_bytes);
void check_conv(const ConvRun& run, std::uint32_t end);
void check_scan(const ScanRun& run);
void check_delta(const DeltaRun& run);
void check_join(const PagedKvLayer& layer, const AttentionItem& item);

}  // namespace quire
