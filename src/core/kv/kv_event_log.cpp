// stored(), removed() and cleared() append events; take() empties the log.
#include "core/kv/kv_event_log.h"

#include <iterator>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

// Collects the multimodal items of each block for events. Unlike the block hashes, each event starts at the first item of the request, as
// in vLLM.
class EventItems {
 public:
  explicit EventItems(const RequestContent& content) : features_(content.multimodal) {}

  void append(std::size_t start, std::size_t end, KvExtraKeys& keys) {
    if (features_.empty() || features_.back().position.end() <= start) return;
    for (; at_ < features_.size() && features_[at_].position.offset() < end; ++at_) {
      const MultimodalFeature& feature = features_[at_];
      if (feature.position.end() <= start) continue;
      keys.push_back(MultimodalKey{feature.identifier, std::int64_t{feature.position.offset()} - static_cast<std::int64_t>(start)});
      if (feature.position.end() > end) return;
    }
  }

 private:
  std::span<const MultimodalFeature> features_;
  std::size_t at_ = 0;  // index of the first item that may overlap the next block
};

std::optional<KvExtraKeys> extra_keys(const RequestContent& content, EventItems& items, std::size_t block, std::uint32_t block_size) {
  const std::size_t start = block * block_size;
  KvExtraKeys keys;
  if (!content.lora_name.empty()) keys.emplace_back(std::string(content.lora_name));
  items.append(start, start + block_size, keys);
  if (start == 0 && !content.cache_salt.empty()) keys.emplace_back(std::string(content.cache_salt));
  const std::optional<HashInput> input = HashInputs(content, block_size, block).next();
  if (input && input->embeds_digest)
    keys.emplace_back(std::vector<std::uint8_t>(input->embeds_digest->begin(), input->embeds_digest->end()));
  return keys.empty() ? std::nullopt : std::optional(std::move(keys));
}

std::vector<TokenId> tokens_between(std::span<const TokenId> tokens, std::size_t start, std::size_t end) {
  QUIRE_CHECK(end <= tokens.size(), "a full block has known tokens");
  return {tokens.begin() + static_cast<std::ptrdiff_t>(start), tokens.begin() + static_cast<std::ptrdiff_t>(end)};
}

}  // namespace

std::vector<std::uint8_t> KvEventLog::bytes_of(std::span<const BlockHash> hashes) const {
  std::vector<std::uint8_t> bytes;
  bytes.reserve(hashes.size() * hash_bytes_);
  for (const BlockHash& hash : hashes) bytes.insert(bytes.end(), hash.bytes.begin(), hash.bytes.begin() + hash_bytes_);
  return bytes;
}

void KvEventLog::stored(const StoredBlocks& stored) {
  QUIRE_CHECK(enabled_, "events are on");
  const std::size_t start = std::size_t{stored.first_block} * stored.block_size;
  QUIRE_CHECK(stored.first_block + stored.blocks.size() <= stored.names.size(), "stored blocks have block hashes");
  BlockStored event;
  event.token_ids = tokens_between(stored.content.tokens, start, start + stored.blocks.size() * stored.block_size);
  event.block_size = stored.block_size;
  event.group_idx = stored.group;
  if (stored.first_block > 0) event.parent_block_hash = bytes_of(stored.names[stored.first_block - 1]);
  std::vector<std::optional<KvExtraKeys>> keys;
  EventItems items(stored.content);
  for (std::size_t i = 0; i < stored.blocks.size(); ++i) {
    if (stored.blocks[i] != kNullBlock) {
      event.block_hashes.push_back(bytes_of(stored.names[stored.first_block + i]));
      keys.push_back(extra_keys(stored.content, items, stored.first_block + i, stored.block_size));
    }
  }
  QUIRE_CHECK(event.block_hashes.size() == keys.size(), "there are extra keys for each block hash");
  if (!keys.empty()) event.extra_keys = std::move(keys);
  if (!stored.content.lora_name.empty()) {
    event.lora_id = stored.lora_id;
    event.lora_name = std::string(stored.content.lora_name);
  }
  events_.emplace_back(std::move(event));
}

void KvEventLog::removed(const BlockKey& name) {
  QUIRE_CHECK(!name.hashes.empty(), "a removed block had a block hash");
  if (enabled_) events_.emplace_back(BlockRemoved{.block_hash = bytes_of(name.hashes), .group_idx = name.group});
}

void KvEventLog::cleared() {
  if (enabled_) events_.emplace_back(AllBlocksCleared{});
}

void KvEventLog::take(std::vector<KvEvent>& out) {
  out.insert(out.end(), std::make_move_iterator(events_.begin()), std::make_move_iterator(events_.end()));
  events_.clear();
}

}  // namespace quire
