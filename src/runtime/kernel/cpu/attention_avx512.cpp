#include "runtime/kernel/cpu/vec_avx512.h"
// The vector type comes first.
#include "runtime/kernel/cpu/attention_impl.h"
#include "runtime/kernel/implementations.h"

namespace quire::avx512 {

void attend(const PagedKvLayer& layer, const AttentionItem& item, std::span<std::byte> scratch) {
  check_attention(layer, item, scratch.size());
  attend_impl(layer, item, scratch.data());
}

}  // namespace quire::avx512
