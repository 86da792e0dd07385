#include "core/journal/left_out.h"

#include <algorithm>

#include "core/journal/pseudonyms.h"

namespace quire {
namespace {

KvEventHash named(const KvEventHash& hash, const NameKey* names) {
  return names != nullptr ? pseudonyms(*names, hash) : hash;
}

}  // namespace

BlockStored left_out(const BlockStored& stored, const NameKey* names) {
  BlockStored other = stored;
  for (KvEventHash& hash : other.block_hashes) hash = named(hash, names);
  if (other.parent_block_hash) other.parent_block_hash = named(*other.parent_block_hash, names);
  std::ranges::fill(other.token_ids, left_out());
  if (!other.extra_keys) return other;
  for (std::optional<KvExtraKeys>& keys : *other.extra_keys) {
    if (!keys) continue;
    for (KvExtraKey& key : *keys)
      if (auto* const digest = std::get_if<std::vector<std::uint8_t>>(&key)) std::ranges::fill(*digest, std::uint8_t{0});
  }
  return other;
}

BlockRemoved left_out(const BlockRemoved& removed, const NameKey* names) {
  BlockRemoved other = removed;
  other.block_hash = named(removed.block_hash, names);
  return other;
}

}  // namespace quire
