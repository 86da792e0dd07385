// Decides when one spec can represent several layers: vLLM's merge() of each spec class and its UniformTypeKVCacheSpecs. Called only by
// cache_groups.cpp. If vLLM asserts a property of a model's layers, this code returns an error instead.
#include "core/kv/cache_groups_merge.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace quire {
namespace {

using Merged = std::optional<LayerKvSpec>;

// Returns the spec as full attention if it belongs to that family, else null.
const FullAttentionSpec* full_attention(const LayerKvSpec& spec) {
  if (const auto* full = std::get_if<FullAttentionSpec>(&spec)) return full;
  if (const auto* mla = std::get_if<MlaAttentionSpec>(&spec)) return mla;
  return std::get_if<SinkFullAttentionSpec>(&spec);
}

bool same_shape(const AttentionShape& a, const AttentionShape& b) {
  return a == b;
}

// Returns the value of this field that all layers share; layers without a value are ignored. Returns nullopt if no layer has a value.
// Error: two values differ.
Result<std::optional<std::uint32_t>> common_window(std::span<const LayerSpec> layers, const char* field,
                                                   std::optional<std::uint32_t> FullAttentionSpec::* size) {
  std::optional<std::uint32_t> common;
  for (const LayerSpec& layer : layers) {
    QUIRE_CHECK(full_attention(layer.spec) != nullptr, "only full attention has a sliding window and a chunk size");
    const std::optional<std::uint32_t> own = full_attention(layer.spec)->*size;
    if (own && common && *own != *common) {
      return fail(ErrorCode::unsupported, field,
                  fmt::format("layer {} has {}, another layer has {}; layers of one cache group must have the same value", layer.name, *own,
                              *common),
                  "enable the hybrid KV cache manager");
    }
    common = own ? own : common;
  }
  return common;
}

// Merges layers of full attention, with or without a sink. The merged spec has the type of the first layer.
template <class Spec>
Result<Merged> merge_full(const Spec& first, std::span<const LayerSpec> layers) {
  for (const LayerSpec& layer : layers)
    if (full_attention(layer.spec) == nullptr || std::holds_alternative<MlaAttentionSpec>(layer.spec)) return Merged();
  const auto window = common_window(layers, "sliding_window", &FullAttentionSpec::sliding_window);
  if (!window) return std::unexpected(window.error());
  const auto chunk = common_window(layers, "attention_chunk_size", &FullAttentionSpec::attention_chunk_size);
  if (!chunk) return std::unexpected(chunk.error());
  const auto alike = [&](const LayerSpec& layer) { return same_shape(*full_attention(layer.spec), first); };
  if (!std::ranges::all_of(layers, alike) || (*window && *chunk)) return Merged();
  Spec merged = first;
  merged.sliding_window = *window;
  merged.attention_chunk_size = *chunk;
  return Merged(merged);
}

// Merges MLA layers. Takes the first layer's shape without comparing the shapes, as vLLM does.
Result<Merged> merge_mla(const MlaAttentionSpec& first, std::span<const LayerSpec> layers) {
  const bool alike = std::ranges::all_of(layers, [&](const LayerSpec& layer) {
    const auto* mla = std::get_if<MlaAttentionSpec>(&layer.spec);
    return mla != nullptr && mla->cache_dtype == first.cache_dtype;
  });
  if (!alike) return Merged();
  MlaAttentionSpec merged = first;
  merged.head_size_v = 0;
  merged.sliding_window.reset();
  merged.attention_chunk_size.reset();
  return Merged(merged);
}

template <class Spec>
bool all_are(std::span<const LayerSpec> layers, const auto& condition) {
  return std::ranges::all_of(layers, [&](const LayerSpec& layer) {
    const auto* spec = std::get_if<Spec>(&layer.spec);
    return spec != nullptr && condition(*spec);
  });
}

}  // namespace

Result<Merged> merge_specs(std::span<const LayerSpec> layers) {
  QUIRE_CHECK(!layers.empty(), "there is at least one layer to merge");
  const LayerKvSpec& first = layers.front().spec;
  if (const auto* full = std::get_if<FullAttentionSpec>(&first)) return merge_full(*full, layers);
  if (const auto* sink = std::get_if<SinkFullAttentionSpec>(&first)) return merge_full(*sink, layers);
  if (const auto* mla = std::get_if<MlaAttentionSpec>(&first)) return merge_mla(*mla, layers);
  const bool equal = std::ranges::all_of(layers, [&](const LayerSpec& layer) { return layer.spec == first; });
  return equal ? Merged(first) : Merged();
}

Result<bool> is_uniform_type(std::span<const LayerSpec> layers) {
  QUIRE_CHECK(!layers.empty(), "there is at least one layer to compare");
  const LayerSpec& first = layers.front();
  const auto same_block_size = [&](const LayerSpec& layer) { return block_size_of(layer.spec) == block_size_of(first.spec); };
  if (!std::ranges::all_of(layers, same_block_size)) return false;
  if (is_full_attention(first.spec))
    return std::ranges::all_of(layers, [](const LayerSpec& layer) { return is_full_attention(layer.spec); });
  if (std::holds_alternative<CrossAttentionSpec>(first.spec)) return all_are<CrossAttentionSpec>(layers, [](const auto&) { return true; });
  if (const auto* window = std::get_if<SlidingWindowSpec>(&first.spec))
    return all_are<SlidingWindowSpec>(layers, [&](const auto& spec) { return spec.sliding_window == window->sliding_window; });
  if (const auto* chunk = std::get_if<ChunkedLocalSpec>(&first.spec))
    return all_are<ChunkedLocalSpec>(layers, [&](const auto& spec) { return spec.attention_chunk_size == chunk->attention_chunk_size; });
  if (const auto* mamba = std::get_if<MambaSpec>(&first.spec))
    return all_are<MambaSpec>(layers, [&](const auto& spec) { return spec.num_speculative_blocks == mamba->num_speculative_blocks; });
  return fail(ErrorCode::unsupported, first.name, "encoder-only layers cannot be combined with layers of another type",
              "remove layers without a KV cache from the specs");
}

}  // namespace quire
