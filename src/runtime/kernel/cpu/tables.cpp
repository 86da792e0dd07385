#include "runtime/kernel/implementations.h"
#include "runtime/kernel/portable.h"

namespace quire {
namespace {

constexpr Kernels kAvx2 = {
    .name = "avx2",
    .prepare = avx2::prepare,
    .matmul = avx2::matmul,
    .write_kv = portable::write_kv,
    .attend = avx2::attend,
    .join_segments = avx2::join_segments,
    .rms_norm = avx2::rms_norm,
    .rope = portable::rope,
    .silu_mul = avx2::silu_mul,
    .gelu_mul = avx2::gelu_mul,
    .soft_cap = avx2::soft_cap,
    .add = portable::add,
    .scale = portable::scale,
};

constexpr Kernels kAvx512 = {
    .name = "avx512",
    .prepare = avx512::prepare,
    .matmul = avx512::matmul,
    .write_kv = portable::write_kv,
    .attend = avx512::attend,
    .join_segments = avx512::join_segments,
    .rms_norm = avx512::rms_norm,
    .rope = portable::rope,
    .silu_mul = avx512::silu_mul,
    .gelu_mul = avx512::gelu_mul,
    .soft_cap = avx512::soft_cap,
    .add = portable::add,
    .scale = portable::scale,
};

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

}  // namespace

const Kernels* cpu_kernels(KernelIsa isa) {
  if (isa == KernelIsa::avx512 && has_avx512()) return &kAvx512;
  if (isa == KernelIsa::avx2 && has_avx2()) return &kAvx2;
  return nullptr;
}

}  // namespace quire
