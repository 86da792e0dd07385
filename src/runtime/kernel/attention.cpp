#include "runtime/kernel/attention.h"

#include "runtime/kernel/attention_scratch.h"

namespace quire {

std::size_t attention_scratch_bytes(std::uint32_t head_dim, std::uint32_t group) {
  return layout_attention_scratch(nullptr, head_dim, group).total_floats * sizeof(float);
}

}  // namespace quire
