#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/kernel/implementations.h"
#include "runtime/kernel/portable.h"

namespace quire {
namespace {

constexpr Kernels kAvx2 = {
    .name = "avx2",
    .prepare_groups = avx2::prepare,
    .matmul = avx2::matmul,
    .multiply_rows = avx2::multiply_rows,
    .write_kv = portable::write_kv,
    .attend = avx2::attend,
    .join_segments = avx2::join_segments,
    .rms_norm = avx2::rms_norm,
    .rope = portable::rope,
    .silu_mul = avx2::silu_mul,
    .sigmoid_mul = avx2::sigmoid_mul,
    .gelu_mul = avx2::gelu_mul,
    .swiglu_limited = avx2::swiglu_limited,
    .soft_cap = avx2::soft_cap,
    .causal_conv = avx2::causal_conv,
    .selective_scan = avx2::selective_scan,
    .delta_rule = avx2::delta_rule,
    .multiply = portable::multiply,
    .add = portable::add,
    .scale = portable::scale,
};

constexpr Kernels with_vnni(Kernels table) {
  table.name = "avx_vnni";
  table.prepare_groups = avx_vnni::prepare;
  table.matmul = avx_vnni::matmul;
  return table;
}
constexpr Kernels kAvxVnni = with_vnni(kAvx2);

constexpr Kernels kAvx512 = {
    .name = "avx512",
    .prepare_groups = avx512::prepare,
    .matmul = avx512::matmul,
    .multiply_rows = avx512::multiply_rows,
    .write_kv = portable::write_kv,
    .attend = avx512::attend,
    .join_segments = avx512::join_segments,
    .rms_norm = avx512::rms_norm,
    .rope = portable::rope,
    .silu_mul = avx512::silu_mul,
    .sigmoid_mul = avx512::sigmoid_mul,
    .gelu_mul = avx512::gelu_mul,
    .swiglu_limited = avx512::swiglu_limited,
    .soft_cap = avx512::soft_cap,
    .causal_conv = avx512::causal_conv,
    .selective_scan = avx512::selective_scan,
    .delta_rule = avx512::delta_rule,
    .multiply = portable::multiply,
    .add = portable::add,
    .scale = portable::scale,
};

constexpr Kernels with_bf16(Kernels table) {
  table.name = "avx512_bf16";
  table.prepare_groups = avx512_bf16::prepare;
  table.matmul = avx512_bf16::matmul;
  table.attend = avx512_bf16::attend;
  return table;
}
constexpr Kernels kAvx512Bf16 = with_bf16(kAvx512);

constexpr Kernels with_tiles(Kernels table) {
  table.name = "amx";
  table.matmul = amx::matmul;
  return table;
}
constexpr Kernels kAmx = with_tiles(kAvx512Bf16);

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool has_avx_vnni() {
  constexpr unsigned kVnniBit = 1U << 4;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return has_avx2() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & kVnniBit) != 0;
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

bool has_avx512_bf16() {
  return has_avx512() && __builtin_cpu_supports("avx512bf16");
}

// Returns whether AMX can be used. The system grants the tile registers to a process on request, once for all of its threads.
bool has_amx() {
  constexpr unsigned kTileBit = 1U << 24, kInt8Bit = 1U << 25;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!has_avx512_bf16() || __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return (edx & kTileBit) != 0 && (edx & kInt8Bit) != 0 && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

const Kernels* cpu_kernels(KernelIsa isa) {
  if (isa == KernelIsa::amx && has_amx()) return &kAmx;
  if (isa == KernelIsa::avx512_bf16 && has_avx512_bf16()) return &kAvx512Bf16;
  if (isa == KernelIsa::avx512 && has_avx512()) return &kAvx512;
  if (isa == KernelIsa::avx_vnni && has_avx_vnni()) return &kAvxVnni;
  if (isa == KernelIsa::avx2 && has_avx2()) return &kAvx2;
  return nullptr;
}

}  // namespace quire
