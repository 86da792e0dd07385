#include "engine/tiers/tier_check.h"

#include <fmt/format.h>

#include "core/connect/offload_connector.h"

namespace quire {

Result<void> check_tier(const CoreConfig& config, const char* field) {
  if (!config.prefix_cache.enable_prefix_caching)
    return fail(ErrorCode::invalid_argument, field, "prefix caching is off, but stored blocks are found through the prefix cache",
                "turn prefix caching on, or serve without a tier");
  if (const Result<void> checked = OffloadConnector::check(config); !checked)
    return fail(ErrorCode::unsupported, field, fmt::format("this model's KV cache cannot be stored: {}", checked.error().message),
                "serve this model without a tier");
  return {};
}

std::vector<std::uint64_t> group_block_bytes(const KvLayout& layout) {
  std::vector<std::uint64_t> bytes;
  bytes.reserve(layout.groups.size());
  for (std::size_t group = 0; group < layout.groups.size(); ++group) bytes.push_back(layout.group_block_bytes(group));
  return bytes;
}

void take_tier_events(OffloadConnector& connector, const TierBlockFormat& format, const char* medium, std::vector<KvEvent>& out) {
  const OffloadLedger& ledger = connector.ledger();
  for (std::size_t i = 0; i < ledger.num_events(); ++i) {
    const OffloadEvent event = ledger.event(i);
    BlockStored* stored = nullptr;  // the last added event, to which further keys of its group are appended
    for (const OffloadKey& key : event.keys) {
      KvEventHash hash(key.hash.begin(), key.hash.begin() + format.hash_bytes);
      if (event.removed) {
        out.push_back(BlockRemoved{.block_hash = std::move(hash), .medium = medium, .group_idx = key.group});
        continue;
      }
      if (stored == nullptr || stored->group_idx != key.group) {
        stored = &std::get<BlockStored>(out.emplace_back(BlockStored()));
        stored->block_size = format.block_size;
        stored->medium = medium;
        stored->group_idx = key.group;
      }
      stored->block_hashes.push_back(std::move(hash));
    }
  }
  connector.clear_events();
}

}  // namespace quire
