#include "runtime/kernel/kernel.h"

#include "base/check.h"
#include "runtime/kernel/implementations.h"
#include "runtime/kernel/portable.h"

namespace quire {
namespace {

constexpr Kernels kReference = {
    .name = "reference",
    .prepare_groups = reference::prepare,
    .matmul = reference::matmul,
    .multiply_rows = reference::multiply_rows,
    .write_kv = portable::write_kv,
    .attend = reference::attend,
    .join_segments = reference::join_segments,
    .rms_norm = reference::rms_norm,
    .rope = portable::rope,
    .silu_mul = reference::silu_mul,
    .sigmoid_mul = reference::sigmoid_mul,
    .gelu_mul = reference::gelu_mul,
    .swiglu_limited = reference::swiglu_limited,
    .soft_cap = reference::soft_cap,
    .causal_conv = reference::causal_conv,
    .selective_scan = reference::selective_scan,
    .delta_rule = reference::delta_rule,
    .multiply = portable::multiply,
    .add = portable::add,
    .scale = portable::scale,
};

const Kernels* table(KernelIsa isa) {
  if (isa == KernelIsa::reference) return &kReference;
  if (isa != KernelIsa::best) return cpu_kernels(isa);
  for (const KernelIsa fast : kFastIsas)
    if (const Kernels* found = cpu_kernels(fast)) return found;
  return &kReference;
}

}  // namespace

Result<const Kernels*> find_kernels(KernelIsa isa) {
  if (const Kernels* found = table(isa)) return found;
  return fail(ErrorCode::unsupported, "isa", "this processor or this build of quire does not support the instruction set", "use \"best\"");
}

const Kernels& select_kernels(KernelIsa isa) {
  const Kernels* found = table(isa);
  QUIRE_CHECK(found != nullptr, "the instruction set is available");
  return *found;
}

}  // namespace quire
