#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "runtime/kernel/implementations.h"
#include "runtime/kernel/portable.h"

namespace quire {
namespace {

constexpr Kernels kNeon = {
    .name = "neon",
    .prepare_groups = neon::prepare,
    .matmul = neon::matmul,
    .multiply_rows = neon::multiply_rows,
    .write_kv = portable::write_kv,
    .attend = neon::attend,
    .join_segments = neon::join_segments,
    .rms_norm = neon::rms_norm,
    .rope = portable::rope,
    .silu_mul = neon::silu_mul,
    .sigmoid_mul = neon::sigmoid_mul,
    .gelu_mul = neon::gelu_mul,
    .swiglu_limited = neon::swiglu_limited,
    .soft_cap = neon::soft_cap,
    .causal_conv = neon::causal_conv,
    .selective_scan = neon::selective_scan,
    .delta_rule = neon::delta_rule,
    .multiply = portable::multiply,
    .add = portable::add,
    .scale = portable::scale,
};

constexpr Kernels with_matrices(Kernels table) {
  table.name = "neon_i8mm";
  table.matmul = neon_i8mm::matmul;
  return table;
}
constexpr Kernels kNeonI8mm = with_matrices(kNeon);

// Returns whether the processor has NEON's dot products. NEON itself is part of every 64-bit ARM processor.
bool has_neon() {
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
}

bool has_i8mm() {
  return has_neon() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
}

}  // namespace

const Kernels* cpu_kernels(KernelIsa isa) {
  if (isa == KernelIsa::neon_i8mm && has_i8mm()) return &kNeonI8mm;
  if (isa == KernelIsa::neon && has_neon()) return &kNeon;
  return nullptr;
}

}  // namespace quire
