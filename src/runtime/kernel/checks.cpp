#include "base/check.h"
#include "runtime/kernel/attention_scratch.h"
#include "runtime/kernel/implementations.h"

namespace quire {

void check_product(const PackedMatrix& w, const Activations& x, std::uint32_t panel_end) {
  QUIRE_CHECK(w.columns == x.columns, "the weights and the activations have the same number of columns");
  QUIRE_CHECK(panel_end <= w.num_panels(), "the panels are within the weight matrix");
}

void check_row_product(const PackedMatrix& w, std::uint32_t panel_end) {
  QUIRE_CHECK(w.format == WeightFormat::f32 || w.format == WeightFormat::bf16, "the weights are f32 or bf16");
  QUIRE_CHECK(panel_end <= w.num_panels(), "the panels are within the weight matrix");
}

void check_attention(const PagedKvLayer& layer, const AttentionItem& item, std::size_t scratch_bytes) {
  QUIRE_CHECK(layer.head_dim % 16 == 0 && layer.head_dim > 0 && layer.head_dim <= kMaxHeadDim,
              "head_dim is a multiple of 16, at most kMaxHeadDim");
  QUIRE_CHECK(item.group > 0 && item.kv_head < layer.num_kv_heads, "the KV head exists, and it has at least one query head");
  QUIRE_CHECK(item.partials == nullptr || (item.rows == 1 && item.first_segment < item.end_segment &&
                                           item.end_segment <= item.first_position / kSegmentTokens + 1 &&
                                           item.first_segment >= window_begin(item.window, item.first_position) / kSegmentTokens),
              "partial attention covers segments of one row");
  for (std::uint32_t row = 0; item.sharing != nullptr && row < item.rows; ++row)
    QUIRE_CHECK(item.sharing[row].position >= item.shared_tokens, "the position of each row is at or after the end of the shared tokens");
  QUIRE_CHECK(item.sharing == nullptr ||
                  (item.window == 0 && item.partials == nullptr && item.shared_tokens % kTileTokens == 0 && item.shared_tokens > 0),
              "shared tokens are a whole number of tiles, without a window and without partial results");
  QUIRE_CHECK(!item.in_pairs || layer.dtype == KvDtype::bf16, "rows are processed in pairs only if the cache is bf16");
  QUIRE_CHECK(scratch_bytes >= attention_scratch_bytes(layer.head_dim, item.group), "the scratch buffer is large enough");
}

void check_conv(const ConvRun& run, std::uint32_t end) {
  QUIRE_CHECK(run.taps >= 2 && run.taps <= kMaxConvTaps, "the convolution has 2 to kMaxConvTaps taps");
  QUIRE_CHECK(end <= run.channels && run.after != nullptr, "the channels are within the layer, and there is a buffer for the next state");
}

void check_scan(const ScanRun& run) {
  QUIRE_CHECK(run.size > 0 && run.after != nullptr, "the state size is valid, and there is a buffer for the next state");
}

void check_delta(const DeltaRun& run) {
  QUIRE_CHECK(run.size > 0 && run.size % 4 == 0 && run.after != nullptr,
              "the state size is valid, and there is a buffer for the next state");
}

void check_join(const PagedKvLayer& layer, const AttentionItem& item) {
  QUIRE_CHECK(item.group > 0 && item.kv_head < layer.num_kv_heads, "the KV head exists, and it has at least one query head");
  QUIRE_CHECK(item.partials != nullptr && item.rows == 1 &&
                  item.first_segment == window_begin(item.window, item.first_position) / kSegmentTokens &&
                  item.end_segment == item.first_position / kSegmentTokens + 1,
              "the join covers every segment of one row");
}

}  // namespace quire
