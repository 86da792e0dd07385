#include "runtime/memory/kv_layout.h"

#include <charconv>
#include <string>

#include "base/check.h"

namespace quire {
namespace {

// Returns the attention shape of a layer. Other kinds were refused earlier, because the engine plans only for models that this runtime
// supports.
const AttentionShape& attention_of(const LayerKvSpec& spec) {
  const AttentionShape* shape = nullptr;
  if (const auto* full = std::get_if<FullAttentionSpec>(&spec)) shape = full;
  if (const auto* latent = std::get_if<MlaAttentionSpec>(&spec)) shape = latent;
  if (const auto* window = std::get_if<SlidingWindowSpec>(&spec)) shape = window;
  if (const auto* cross = std::get_if<CrossAttentionSpec>(&spec)) shape = cross;
  QUIRE_CHECK(shape != nullptr, "the layer has full, latent, cross or sliding-window attention, or a state");
  return *shape;
}

// Returns the layout of a layer with a state. The state is at the beginning of its page; its parts follow one another.
KvLayerLayout lay_out(const MambaSpec& spec, std::uint64_t page_bytes) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < spec.shapes.size(); ++i) {
    QUIRE_CHECK(spec.dtypes[i].bytes == sizeof(float), "states are stored as float32");
    std::uint64_t part = sizeof(float);
    for (const std::uint64_t dimension : spec.shapes[i]) part *= dimension;
    bytes += part;
  }
  QUIRE_CHECK(bytes > 0 && bytes <= page_bytes && page_bytes % sizeof(float) == 0,
              "a page is large enough for a state, and a whole number of floats");
  return {.block_stride = page_bytes / sizeof(float), .state_bytes = bytes};
}

std::uint32_t layer_number(const std::string& name, std::size_t num_layers) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  QUIRE_CHECK(error == std::errc() && end == name.data() + name.size() && number < num_layers, "the name of a layer is its number");
  return number;
}

// Returns the layout of an attention layer. A kernel block is [keys, values][head][token][dim]; in latent attention the keys are also the
// values. The keys of a head are adjacent, token after token, so that attention reads the context of one head sequentially.
KvLayerLayout lay_out(const LayerKvSpec& spec, const KvGroupLayout& group, std::uint64_t page_bytes, KvDtype dtype) {
  const AttentionShape& shape = attention_of(spec);
  const bool is_latent = std::holds_alternative<MlaAttentionSpec>(spec);
  const std::uint32_t element_bytes = quire::element_bytes(dtype);
  const std::uint64_t kernel_page_bytes = page_bytes / group.kernel_blocks_per_block();
  const std::uint64_t head_stride = std::uint64_t{group.kernel_block_size} * shape.head_size;
  const std::uint64_t values_offset = is_latent ? 0 : shape.num_kv_heads * head_stride;
  QUIRE_CHECK(shape.dtype.bytes == element_bytes && kernel_page_bytes % element_bytes == 0, "the layer has the element type of the cache");
  QUIRE_CHECK((shape.num_kv_heads * head_stride + values_offset) * element_bytes <= kernel_page_bytes,
              "a page is large enough for the keys and values of its tokens");
  return {.num_kv_heads = shape.num_kv_heads,
          .head_dim = shape.head_size - row_elements(dtype, 0),
          .block_stride = kernel_page_bytes / element_bytes,
          .head_stride = head_stride,
          .token_stride = shape.head_size,
          .values_offset = values_offset};
}

}  // namespace

KvLayout make_kv_layout(const KvCacheConfig& config, KvDtype dtype, std::span<const std::uint32_t> kernel_block_sizes) {
  QUIRE_CHECK(config.num_blocks > 0 && (kernel_block_sizes.empty() || kernel_block_sizes.size() == config.groups.size()));
  KvLayout layout{.num_blocks = config.num_blocks, .dtype = dtype, .groups = {}, .layers = {}, .page_bytes = {}};
  std::size_t num_layers = 0;
  for (const KvCacheGroup& group : config.groups) num_layers += group.layer_names.size();
  for (const KvCacheTensor& tensor : config.tensors) layout.page_bytes.push_back(tensor.size / config.num_blocks);
  layout.layers.resize(num_layers);
  for (std::uint32_t g = 0; g < config.groups.size(); ++g) {
    const KvCacheGroup& from = config.groups[g];
    const std::uint32_t block_size = block_size_of(from.spec);
    KvGroupLayout& group = layout.groups.emplace_back();
    group = {.spec = from.spec, .block_size = block_size, .kernel_block_size = block_size, .layers = {}};
    // A state is not divided into kernel blocks.
    if (!kernel_block_sizes.empty() && !group.keeps_states()) group.kernel_block_size = kernel_block_sizes[g];
    QUIRE_CHECK(group.kernel_block_size > 0 && block_size % group.kernel_block_size == 0, "a block is a whole number of kernel blocks");
    for (std::uint32_t i = 0; i < from.layer_names.size(); ++i) {
      const std::uint32_t number = layer_number(from.layer_names[i], num_layers);
      KvLayerLayout& layer = layout.layers[number];
      QUIRE_CHECK(layer.block_stride == 0, "a layer is in one group");
      QUIRE_CHECK(i < layout.page_bytes.size() && layout.page_bytes[i] * config.num_blocks == config.tensors[i].size,
                  "a tensor has one page per block");
      const LayerKvSpec& spec = from.layer_specs.empty() ? from.spec : from.layer_specs[i];
      const auto* state = std::get_if<MambaSpec>(&spec);
      layer = state != nullptr ? lay_out(*state, layout.page_bytes[i]) : lay_out(spec, group, layout.page_bytes[i], dtype);
      layer.group = g;
      layer.tensor = i;
      group.layers.push_back(number);
    }
  }
  return layout;
}

}  // namespace quire
