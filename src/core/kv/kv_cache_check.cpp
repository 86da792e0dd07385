// Checks a configuration before the first request, as vLLM's assertions in the managers and coordinators do. Called by
// CoreConfig::validate() and when a manager is made. vLLM stops with an AssertionError; here the error names the field.
#include <fmt/format.h>

#include <algorithm>

#include "core/kv/kv_cache_manager.h"

namespace quire {
namespace {

Result<void> invalid(std::string field, std::string message, std::string remedy = {}) {
  return fail(ErrorCode::invalid_argument, std::move(field), std::move(message), std::move(remedy));
}

Result<void> unsupported(std::string field, std::string message, std::string remedy = {}) {
  return fail(ErrorCode::unsupported, std::move(field), std::move(message), std::move(remedy));
}

std::string group_name(std::size_t group) {
  return fmt::format("kv.groups[{}]", group);
}

std::uint64_t set_aside_blocks(const KvCacheConfig& config, const KvCacheOptions& options) {
  std::uint64_t count = 0;
  for (const KvCacheGroup& group : config.groups)
    if (const auto* sink = std::get_if<SinkFullAttentionSpec>(&group.spec))
      count += sink->sink_len / (sink->block_size * options.dcp_world_size * options.pcp_world_size);
  return count;
}

Result<void> check_kind(const LayerKvSpec& spec, std::uint32_t block_size, const std::string& field) {
  if (const auto* sink = std::get_if<SinkFullAttentionSpec>(&spec); sink && (sink->sink_len == 0 || sink->sink_len % block_size != 0))
    return invalid(field + ".sink_len", fmt::format("{} is not a positive multiple of the block size {}", sink->sink_len, block_size));
  if (const auto* window = std::get_if<SlidingWindowSpec>(&spec); window && window->sliding_window == 0)
    return invalid(field + ".sliding_window", "must be at least 1, got 0");
  if (const auto* chunked = std::get_if<ChunkedLocalSpec>(&spec); chunked && chunked->attention_chunk_size == 0)
    return invalid(field + ".attention_chunk_size", "must be at least 1, got 0");
  if (std::holds_alternative<EncoderOnlySpec>(spec))
    return invalid(field, "encoder-only layers need no KV cache", "remove them from the cache groups");
  return {};
}

// Checks limits that apply only with prefix caching.
Result<void> check_cached(const KvCacheConfig& config, const KvCacheOptions& options, std::size_t group, bool one_block_size) {
  const LayerKvSpec& spec = config.groups[group].spec;
  const std::string field = group_name(group);
  const bool is_window = std::holds_alternative<SlidingWindowSpec>(spec);
  const bool is_chunked = std::holds_alternative<ChunkedLocalSpec>(spec);
  if (std::holds_alternative<CrossAttentionSpec>(spec))
    return unsupported(field, "cross-attention blocks cannot be cached", "turn prefix caching off");
  if (options.dcp_world_size * options.pcp_world_size > 1 && !is_full_attention(spec))
    return unsupported(field, "prefix caching with context parallelism needs full attention", "turn prefix caching off or use one rank");
  if (is_chunked && options.use_eagle)
    return unsupported(field, "chunked local attention cannot be combined with EAGLE", "turn one of them off");
  // The search looks one block past the end of the hit if EAGLE drops a block only once. This search does not support states.
  if (std::holds_alternative<MambaSpec>(spec) && options.use_eagle && options.rules.eagle_drops_once)
    return unsupported(field, "states cannot be combined with EAGLE if EAGLE drops a block only once", "turn prefix caching or EAGLE off");
  if ((is_chunked || (is_window && options.use_eagle)) && !one_block_size)
    return unsupported(field, "this attention type needs cache groups with the same block size");
  return {};
}

Result<void> check_caching(const KvCacheConfig& config, const KvCacheOptions& options) {
  const std::uint32_t ranks = options.dcp_world_size * options.pcp_world_size;
  const auto size_of = [&](const KvCacheGroup& group) { return block_size_of(group.spec); };
  if (config.groups.empty()) return unsupported("kv.groups", "there is nothing to cache", "turn prefix caching off");
  if (config.groups.size() == 1 && options.hash_block_size != size_of(config.groups.front()) * ranks)
    return invalid("hash_block_size", fmt::format("{} is not the block size of the only cache group", options.hash_block_size));
  if (config.groups.size() > 1) {
    const auto same = [&](const KvCacheGroup& group) { return group.spec == config.groups.front().spec; };
    if (std::ranges::all_of(config.groups, same))
      return unsupported("kv.groups", "several cache groups have the same spec", "merge them into one group");
    if (ranks > 1) return unsupported("kv.groups", "context parallelism cannot be combined with several cache groups");
  }
  const auto first_size = size_of(config.groups.front());
  const bool one_block_size = std::ranges::all_of(config.groups, [&](const auto& group) { return size_of(group) == first_size; });
  for (std::size_t i = 0; i < config.groups.size(); ++i) {
    if (size_of(config.groups[i]) * ranks % options.hash_block_size != 0)
      return invalid(group_name(i) + ".block_size", fmt::format("is not a multiple of the hash block size {}", options.hash_block_size));
    if (auto result = check_cached(config, options, i, one_block_size); !result) return result;
  }
  return {};
}

}  // namespace

Result<void> KvCacheManager::check(const KvCacheConfig& config, const KvCacheOptions& options) {
  if (options.max_model_len == 0 || options.dcp_world_size == 0 || options.pcp_world_size == 0)
    return invalid(options.max_model_len == 0 ? "max_model_len" : "dcp_world_size, pcp_world_size", "must be at least 1, got 0");
  if (options.hash_bytes == 0 || options.hash_bytes > sizeof(BlockHash::bytes))
    return invalid("hash_bytes", fmt::format("{} is not in the range of 1 to {}", options.hash_bytes, sizeof(BlockHash::bytes)));
  for (std::size_t i = 0; i < config.groups.size(); ++i) {
    const std::uint32_t size = block_size_of(config.groups[i].spec);
    if (size == 0) return invalid(group_name(i) + ".block_size", "must be at least 1, got 0");
    if (auto result = check_kind(config.groups[i].spec, size * options.dcp_world_size * options.pcp_world_size, group_name(i)); !result)
      return result;
  }
  if (config.num_blocks < 1 + set_aside_blocks(config, options))
    return invalid("kv.num_blocks", fmt::format("{} blocks leave no room for the null block and the sink blocks", config.num_blocks));
  if (options.enable_caching && options.hash_block_size == 0) return invalid("hash_block_size", "must be at least 1, got 0");
  return options.enable_caching ? check_caching(config, options) : Result<void>{};
}

}  // namespace quire
