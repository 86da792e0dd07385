#include "runtime/kernel/implementations.h"

namespace quire {

const Kernels* cpu_kernels(KernelIsa /*isa*/) {
  return nullptr;
}

}  // namespace quire
