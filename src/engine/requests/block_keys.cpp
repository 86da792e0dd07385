#include "engine/requests/block_keys.h"

#include "base/check.h"
#include "core/kv/hash/hash_function.h"

namespace quire {

std::vector<BlockHash> name_blocks(const EngineRequest& request, const AdapterLease* adapter, const CoreConfig& config) {
  std::vector<BlockHash> names;
  if (!config.prefix_cache.enable_prefix_caching || hash_size(config.prefix_cache.hash) != sizeof(BlockHash)) return names;
  const auto hash = make_hash_function(
      {.algorithm = config.prefix_cache.hash, .seed = config.prefix_cache.hash_seed, .root = config.prefix_cache.root_hash});
  QUIRE_CHECK(hash.has_value(), "the hash algorithm of the core is available");
  names.reserve(request.prompt.size() / config.block_size);
  RequestContent content;
  content.tokens = request.prompt;
  content.cache_salt = request.cache_salt;
  std::vector<MultimodalFeature> features;
  features.reserve(request.pictures.size());
  for (const PromptImage& picture : request.pictures) features.push_back({picture.identifier, picture.position});
  content.multimodal = features;
  if (adapter != nullptr) content.lora_name = adapter->resident->content_id;
  hash_full_blocks(**hash, content, config.block_size, names);
  return names;
}

}  // namespace quire
