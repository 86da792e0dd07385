#include "runtime/model/weights/kv_fingerprint.h"

#include <fmt/format.h>

#include "runtime/kernel/numeric_family.h"

namespace quire {
namespace {

const char* name_of(ActivationMode mode) {
  return mode == ActivationMode::int16 ? "int16" : mode == ActivationMode::int8 ? "int8" : mode == ActivationMode::bf16 ? "bf16" : "f32";
}

// Returns a description of the layout, without the number of blocks.
std::string describe_layout(const KvLayout& layout) {
  std::string text = fmt::format("{} pages {}", quire::name_of(layout.dtype), fmt::join(layout.page_bytes, " "));
  for (const KvGroupLayout& group : layout.groups)
    text +=
        fmt::format(" group {} {} {} {}", group.block_size, group.kernel_block_size, group.sliding_window(), fmt::join(group.layers, " "));
  for (const KvLayerLayout& layer : layout.layers)
    text += layer.state_bytes > 0
                ? fmt::format(" layer {} {} f32 state {} {}", layer.group, layer.tensor, layer.state_bytes, layer.block_stride)
                : fmt::format(" layer {} {} {} {} {} {} {} {}", layer.group, layer.tensor, layer.num_kv_heads, layer.head_dim,
                              layer.block_stride, layer.head_stride, layer.token_stride, layer.values_offset);
  return text;
}

}  // namespace

Result<Sha256Digest> kv_fingerprint(const ModelFile& model, const KvLayout& layout, const KvArithmetic& arithmetic,
                                    std::string_view naming) {
  const Result<Sha256Digest> of_files = model.digest();
  if (!of_files) return std::unexpected(of_files.error());
  std::string text = fmt::format("files {}\nkv {}\nactivations {}\nkernels {}\ndecoder {}\nnames {}\n", to_hex(*of_files),
                                 describe_layout(layout), name_of(arithmetic.activations), kNumericFamily, kDecoderRevision, naming);
  // Without quantisation, the fingerprint is the same as in versions before `quantise` was added.
  if (arithmetic.quantise != WeightQuantisation::none) text += fmt::format("quantised {}\n", static_cast<int>(arithmetic.quantise));
  return Sha256::of(std::as_bytes(std::span(text)));
}

}  // namespace quire
