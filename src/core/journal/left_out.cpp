#include "core/journal/left_out.h"

#include <algorithm>

#include "core/journal/pseudonyms.h"

namespace quire {
namespace {

KvEventHash named(const KvEventHash& hash, const PseudonymKey* key) {
  return key != nullptr ? pseudonyms(*key, hash) : hash;
}

}  // namespace

BlockStored left_out(const BlockStored& stored, const PseudonymKey* key) {
  BlockStored other = stored;
  for (KvEventHash& hash : other.block_hashes) hash = named(hash, key);
  if (other.parent_block_hash) other.parent_block_hash = named(*other.parent_block_hash, key);
  std::ranges::fill(other.token_ids, left_out());
  if (!other.extra_keys) return other;
  for (std::optional<KvExtraKeys>& keys : *other.extra_keys) {
    if (!keys) continue;
    for (KvExtraKey& extra : *keys)
      if (auto* const digest = std::get_if<std::vector<std::uint8_t>>(&extra)) std::ranges::fill(*digest, std::uint8_t{0});
  }
  return other;
}

BlockRemoved left_out(const BlockRemoved& removed, const PseudonymKey* key) {
  BlockRemoved other = removed;
  other.block_hash = named(removed.block_hash, key);
  return other;
}

}  // namespace quire
