#include "runtime/kernel/cpu/x86/vec_avx2.h"
// The headers below need the type Vec of the header above.
#include "runtime/kernel/cpu/attention_impl.h"
#include "runtime/kernel/implementations.h"

namespace quire::avx2 {

void attend(const PagedKvLayer& layer, const AttentionItem& item, std::span<std::byte> scratch) {
  check_attention(layer, item, scratch.size());
  attend_impl(layer, item, scratch.data());
}

void join_segments(const PagedKvLayer& layer, const AttentionItem& item) {
  check_join(layer, item);
  join_impl(layer, item);
}

}  // namespace quire::avx2
