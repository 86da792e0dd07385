// Gathers layers into cache groups with one block table each. Called once on the caller's thread when an engine or a vLLM worker is set up;
// the functions are pure. The groups must equal vLLM's, including their order and names: the key of a cached block contains the group's
// number, so hosts with a different order could not share blocks.
#include "core/kv/cache_groups.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "core/kv/cache_groups_merge.h"
#include "core/kv/cache_groups_size.h"

namespace quire {
namespace {

// Fills in `head_size_v`, so that equal layers have equal specs.
LayerSpecs with_head_sizes(LayerSpecs layers) {
  for (LayerSpec& layer : layers) {
    std::visit(
        [](auto& spec) {
          if constexpr (std::is_base_of_v<FullAttentionSpec, std::remove_cvref_t<decltype(spec)>>)
            spec.head_size_v = spec.head_size_v == 0 ? spec.head_size : spec.head_size_v;
        },
        layer.spec);
  }
  return layers;
}

// Returns one group for all layers, with one merged spec, or with one spec per layer if all layers have the same type. Returns nullopt if
// neither is possible.
Result<std::optional<KvCacheGroup>> one_group(std::span<const LayerSpec> layers) {
  auto merged = merge_specs(layers);
  if (!merged) return std::unexpected(std::move(merged.error()));
  KvCacheGroup group;
  std::ranges::transform(layers, std::back_inserter(group.layer_names), &LayerSpec::name);
  if (const std::optional<LayerKvSpec>& spec = *merged; spec.has_value()) {
    group.spec = *spec;
    return group;
  }
  const auto uniform = is_uniform_type(layers);
  if (!uniform) return std::unexpected(uniform.error());
  if (!*uniform) return std::nullopt;
  group.spec = layers.front().spec;
  std::ranges::transform(layers, std::back_inserter(group.layer_specs), &LayerSpec::spec);
  return group;
}

template <class Spec>
FullAttentionSpec as_full_attention(const Spec& spec) {
  FullAttentionSpec full;
  static_cast<AttentionShape&>(full) = spec;
  full.head_size_v = spec.head_size;
  if constexpr (std::is_same_v<Spec, SlidingWindowSpec>)
    full.sliding_window = spec.sliding_window;
  else
    full.attention_chunk_size = spec.attention_chunk_size;
  return full;
}

// Converts windows and chunks to full attention if the model also has full-attention layers.
void unify_hybrid(LayerSpecs& layers) {
  if (!std::ranges::any_of(layers, [](const LayerSpec& layer) { return is_full_attention(layer.spec); })) return;
  for (LayerSpec& layer : layers)
    if (const auto* window = std::get_if<SlidingWindowSpec>(&layer.spec))
      layer.spec = as_full_attention(*window);
    else if (const auto* chunk = std::get_if<ChunkedLocalSpec>(&layer.spec))
      layer.spec = as_full_attention(*chunk);
}

// Makes all pages as large as the largest page, by giving blocks of smaller pages more tokens.
Result<void> unify_page_size(LayerSpecs& layers) {
  std::uint64_t largest = 0;
  for (const LayerSpec& layer : layers) largest = std::max(largest, page_size_bytes(layer.spec));
  for (LayerSpec& layer : layers) {
    const std::uint64_t own = page_size_bytes(layer.spec);
    QUIRE_CHECK(own > 0, "a page has at least one byte");
    const std::uint64_t block_size = saturating_product(block_size_of(layer.spec), largest / own);
    const auto cannot_grow = [&] {
      return fail(ErrorCode::unsupported, layer.name,
                  fmt::format("its pages of {} bytes cannot be made as large as the largest pages ({} bytes)", own, largest),
                  "use block sizes or paddings that make the page sizes equal or divisible");
    };
    if (largest % own != 0 || block_size > UINT32_MAX) return cannot_grow();
    std::visit([&](auto& spec) { spec.block_size = static_cast<std::uint32_t>(block_size); }, layer.spec);
    if (page_size_bytes(layer.spec) != largest) return cannot_grow();
  }
  return {};
}

// Returns the layers by kind: layers with equal specs, in order of first appearance.
std::vector<LayerSpecs> by_spec(const LayerSpecs& layers) {
  std::vector<LayerSpecs> kinds;
  for (const LayerSpec& layer : layers) {
    auto kind = std::ranges::find_if(kinds, [&](const LayerSpecs& other) { return other.front().spec == layer.spec; });
    if (kind == kinds.end()) kind = kinds.emplace(kinds.end());
    kind->push_back(layer);
  }
  return kinds;
}

// Returns the size of the smallest kind, or the size of the largest kind if it has less than 1.5 times as many layers. The second case pads
// the smaller groups.
std::size_t layers_per_group(const std::vector<LayerSpecs>& kinds) {
  QUIRE_CHECK(!kinds.empty(), "there is at least one kind of layer");
  const auto [fewest, most] = std::ranges::minmax(kinds, {}, &LayerSpecs::size);
  return 2 * most.size() < 3 * fewest.size() ? most.size() : fewest.size();
}

// Makes groups with equal numbers of layers, so that the i-th layers of all groups can share a tensor. Distributes neighbouring layers over
// different groups, so that each pipeline stage has layers of every group.
Result<std::vector<KvCacheGroup>> split_into_groups(const LayerSpecs& layers) {
  QUIRE_CHECK(!layers.empty(), "there is at least one layer to group");
  const std::vector<LayerSpecs> kinds = by_spec(layers);
  const std::size_t group_size = layers_per_group(kinds);
  QUIRE_CHECK(group_size > 0, "each kind has at least one layer");
  std::vector<KvCacheGroup> groups;
  for (const LayerSpecs& kind : kinds) {
    const auto merged = merge_specs(kind);
    const std::optional<LayerKvSpec> spec = merged ? *merged : std::nullopt;
    if (!spec) {
      return fail(ErrorCode::unsupported, kind.front().name, "the layer has both a sliding window and chunked attention",
                  "set only one of them");
    }
    const std::size_t num_groups = divide_up(kind.size(), group_size);
    for (std::size_t i = 0; i < num_groups; ++i) {
      KvCacheGroup& group = groups.emplace_back(KvCacheGroup{.layer_names = {}, .spec = *spec, .layer_specs = {}});
      for (std::size_t j = i; j < kind.size(); j += num_groups) group.layer_names.push_back(kind[j].name);
    }
  }
  std::size_t num_grouped = 0;
  for (const KvCacheGroup& group : groups) num_grouped += group.layer_names.size();
  QUIRE_CHECK(num_grouped == layers.size(), "each layer is in exactly one group");
  return groups;
}

}  // namespace

Result<std::vector<KvCacheGroup>> kv_cache_groups(const LayerSpecs& given, bool disable_hybrid_kv_cache_manager) {
  if (auto valid = check_layers(given); !valid) return std::unexpected(std::move(valid.error()));
  if (given.empty()) return std::vector<KvCacheGroup>();
  LayerSpecs layers = with_head_sizes(given);
  auto group = one_group(layers);
  if (group && !*group && disable_hybrid_kv_cache_manager) {
    unify_hybrid(layers);
    group = one_group(layers);
    if (group && !*group) {
      return fail(ErrorCode::unsupported, "disable_hybrid_kv_cache_manager", "the layers cannot be kept in one cache group",
                  "enable the hybrid KV cache manager");
    }
  }
  if (!group) return std::unexpected(std::move(group.error()));
  if (std::optional<KvCacheGroup>& only = *group; only.has_value()) return std::vector<KvCacheGroup>{std::move(*only)};
  if (auto unified = unify_page_size(layers); !unified) return std::unexpected(std::move(unified.error()));
  return split_into_groups(layers);
}

}  // namespace quire
