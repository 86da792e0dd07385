// Computes the bytes of a page and the maximum number of blocks that one request needs per kind of layer, and checks a layer's spec. Called
// by the other cache_groups files. Sizes saturate instead of overflowing, so the cache of an absurdly large model is reported as too large.
#include "core/kv/cache_groups_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "core/kv/cache_groups.h"

namespace quire {
namespace {

constexpr std::uint64_t kLargestPage = std::uint64_t{1} << 40;  // in bytes; far above any real layer
constexpr std::uint64_t kSparseMlaBytesPerToken = 656;          // vLLM: attention/backends/mla/flashmla_sparse.py

// Returns the bytes of a block without padding: its keys and values, or its states.
struct RealPageSize {
  std::uint64_t operator()(const AttentionShape& shape) const { return elements(shape, 2 * std::uint64_t{shape.head_size}); }
  std::uint64_t operator()(const FullAttentionSpec& spec) const {
    const std::uint32_t head_size_v = spec.head_size_v == 0 ? spec.head_size : spec.head_size_v;
    return elements(spec, std::uint64_t{spec.head_size} + head_size_v);
  }
  std::uint64_t operator()(const MlaAttentionSpec& spec) const {
    return spec.cache_dtype == "fp8_ds_mla" ? spec.block_size * kSparseMlaBytesPerToken : elements(spec, spec.head_size);
  }
  std::uint64_t operator()(const MambaSpec& spec) const {
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < std::min(spec.shapes.size(), spec.dtypes.size()); ++i) {
      std::uint64_t state = spec.dtypes[i].bytes;
      for (std::uint64_t dimension : spec.shapes[i]) state = saturating_product(state, dimension);
      bytes = saturating_sum(bytes, state);
    }
    return bytes;
  }

  static std::uint64_t elements(const AttentionShape& shape, std::uint64_t per_head) {
    const std::uint64_t per_token = saturating_product(saturating_product(per_head, shape.num_kv_heads), shape.dtype.bytes);
    return saturating_product(per_token, shape.block_size);
  }
};

// Returns the maximum number of blocks that one request can need.
struct MaxPages {
  const KvMemoryOptions& options;

  std::uint64_t operator()(const FullAttentionSpec& spec) const {
    const std::uint64_t ranks = std::uint64_t{options.dcp_world_size} * options.pcp_world_size;
    return divide_up(divide_up(options.max_model_len, ranks), spec.block_size);
  }
  std::uint64_t operator()(const ChunkedLocalSpec& spec) const {
    const std::uint64_t held = std::uint64_t{spec.attention_chunk_size} + options.max_num_batched_tokens;
    return divide_up(std::min<std::uint64_t>(held, options.max_model_len), spec.block_size);
  }
  std::uint64_t operator()(const SlidingWindowSpec& spec) const {
    QUIRE_CHECK(spec.sliding_window > 0, "a sliding window has at least one token");
    const std::uint64_t held = std::uint64_t{spec.sliding_window} - 1 + options.max_num_batched_tokens;
    // Adds one block because a window can begin inside a block.
    return divide_up(std::min<std::uint64_t>(held, options.max_model_len), spec.block_size) + 1;
  }
  std::uint64_t operator()(const MambaSpec& spec) const {
    switch (options.mamba_cache_mode) {
      case MambaCacheMode::all:
        return divide_up(options.max_model_len, spec.block_size);
      case MambaCacheMode::align:
        return std::uint64_t{2} + spec.num_speculative_blocks;
      case MambaCacheMode::none:
        break;
    }
    return std::uint64_t{1} + spec.num_speculative_blocks;
  }
  std::uint64_t operator()(const CrossAttentionSpec& spec) const {
    return divide_up(options.max_num_encoder_input_tokens, spec.block_size);
  }
  std::uint64_t operator()(const EncoderOnlySpec& /*spec*/) const { return 0; }
};

std::uint64_t real_page_size(const LayerKvSpec& spec) {
  return std::visit(RealPageSize(), spec);
}

std::optional<std::uint64_t> padded_page_size(const LayerKvSpec& spec) {
  return std::visit([](const auto& kind) { return kind.page_size_padded; }, spec);
}

Result<void> check_layer(const LayerSpec& layer) {
  const auto invalid = [&](std::string message, std::string remedy = "use the sizes of the layer's attention") {
    return fail(ErrorCode::invalid_argument, layer.name, std::move(message), std::move(remedy));
  };
  if (block_size_of(layer.spec) == 0) return invalid("block_size must be at least 1, got 0");
  const std::uint64_t real = real_page_size(layer.spec);
  if (real == 0) return invalid("the size of a block is 0 bytes");
  const std::uint64_t padded = padded_page_size(layer.spec).value_or(real);
  if (padded < real)
    return invalid(fmt::format("page_size_padded is {} bytes, but a block has {} bytes", padded, real),
                   "pad to at least the size of a block");
  if (padded > kLargestPage) return invalid("a block has more than 1 TiB");
  const auto* window = std::get_if<SlidingWindowSpec>(&layer.spec);
  if (window != nullptr && window->sliding_window == 0)
    return invalid("sliding_window must be at least 1, got 0", "use a sliding window of at least one token");
  const auto* mamba = std::get_if<MambaSpec>(&layer.spec);
  if (mamba != nullptr && mamba->shapes.size() != mamba->dtypes.size())
    return invalid(fmt::format("there are {} shapes but {} dtypes", mamba->shapes.size(), mamba->dtypes.size()), "use one dtype per shape");
  return {};
}

}  // namespace

std::uint64_t page_size_bytes(const LayerKvSpec& spec) {
  return padded_page_size(spec).value_or(real_page_size(spec));
}

std::uint64_t page_size_bytes(const KvCacheGroup& group) {
  if (group.layer_specs.empty()) return page_size_bytes(group.spec);
  std::uint64_t bytes = 0;
  for (const LayerKvSpec& spec : group.layer_specs) bytes = saturating_sum(bytes, page_size_bytes(spec));
  return bytes;
}

std::uint64_t max_memory_usage_bytes(const LayerKvSpec& spec, const KvMemoryOptions& options) {
  return saturating_product(std::visit(MaxPages{options}, spec), page_size_bytes(spec));
}

std::uint64_t max_memory_usage_bytes(const KvCacheGroup& group, const KvMemoryOptions& options) {
  if (group.layer_specs.empty()) return max_memory_usage_bytes(group.spec, options);
  std::uint64_t pages = 0;
  for (const LayerKvSpec& spec : group.layer_specs) pages = std::max(pages, std::visit(MaxPages{options}, spec));
  return saturating_product(pages, page_size_bytes(group));
}

Result<void> check_layers(const LayerSpecs& layers) {
  std::unordered_set<std::string_view> names;
  for (const LayerSpec& layer : layers) {
    if (!names.insert(layer.name).second)
      return fail(ErrorCode::invalid_argument, layer.name, "two layers have this name", "use each layer name once");
    if (auto valid = check_layer(layer); !valid) return valid;
  }
  return {};
}

}  // namespace quire
