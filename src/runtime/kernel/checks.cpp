#include "base/check.h"
#include "runtime/kernel/attention_scratch.h"
#include "runtime/kernel/implementations.h"

namespace quire {

void check_product(const PackedMatrix& w, const Activations& x, std::uint32_t panel_end) {
  QUIRE_CHECK(w.columns == x.columns, "inputs of the product");
  QUIRE_CHECK(panel_end <= w.num_panels(), "panels of the product");
}

void check_row_product(const PackedMatrix& w, std::uint32_t panel_end) {
  QUIRE_CHECK(w.format == WeightFormat::f32 || w.format == WeightFormat::bf16, "weights in floats");
  QUIRE_CHECK(panel_end <= w.num_panels(), "panels of the product");
}

void check_attention(const PagedKvLayer& layer, const AttentionItem& item, std::size_t scratch_bytes) {
  QUIRE_CHECK(layer.head_dim % 16 == 0 && layer.head_dim > 0 && layer.head_dim <= kMaxHeadDim, "head_dim");
  QUIRE_CHECK(item.group > 0 && item.kv_head < layer.num_kv_heads, "heads");
  QUIRE_CHECK(item.partials == nullptr || (item.rows == 1 && item.first_segment < item.end_segment &&
                                           item.end_segment <= item.first_position / kSegmentTokens + 1 &&
                                           item.first_segment >= window_begin(item.window, item.first_position) / kSegmentTokens),
              "segments of one row");
  for (std::uint32_t row = 0; item.sharing != nullptr && row < item.rows; ++row)
    QUIRE_CHECK(item.sharing[row].position >= item.shared_tokens, "each row sees all that is shared, and itself");
  QUIRE_CHECK(item.sharing == nullptr ||
                  (item.window == 0 && item.partials == nullptr && item.shared_tokens % kTileTokens == 0 && item.shared_tokens > 0),
              "whole tiles are shared");
  QUIRE_CHECK(!item.in_pairs || layer.dtype == KvDtype::bf16, "pairs of a cache in bf16");
  QUIRE_CHECK(scratch_bytes >= attention_scratch_bytes(layer.head_dim, item.group), "scratch too small");
}

void check_conv(const ConvRun& run, std::uint32_t end) {
  QUIRE_CHECK(run.taps >= 2 && run.taps <= kMaxConvTaps, "a convolution of a few tokens");
  QUIRE_CHECK(end <= run.channels && run.after != nullptr, "channels of the layer, and a place for what follows");
}

void check_scan(const ScanRun& run) {
  QUIRE_CHECK(run.size > 0 && run.after != nullptr, "a state, and a place for what follows");
}

void check_delta(const DeltaRun& run) {
  QUIRE_CHECK(run.size > 0 && run.size % 4 == 0 && run.after != nullptr, "a state, and a place for what follows");
}

void check_join(const PagedKvLayer& layer, const AttentionItem& item) {
  QUIRE_CHECK(item.group > 0 && item.kv_head < layer.num_kv_heads, "heads");
  QUIRE_CHECK(item.partials != nullptr && item.rows == 1 &&
                  item.first_segment == window_begin(item.window, item.first_position) / kSegmentTokens &&
                  item.end_segment == item.first_position / kSegmentTokens + 1,
              "every segment of one row");
}

}  // namespace quire
