// Encoding of a block: the parent's 32 bytes, then tag, length and bytes of each field that is present, all numbers little-endian.
#include "core/kv/block_hash.h"

#include <algorithm>
#include <bit>

namespace quire {

static_assert(std::endian::native == std::endian::little, "token ids are hashed as they lie in memory");

BlockContent block_content(std::span<const TokenId> tokens, const ExtraKeys& extra, std::uint32_t start, std::uint32_t num_tokens) {
  BlockContent content{
      .tokens = tokens.subspan(start, num_tokens), .start = start, .lora_name = extra.lora_name, .multimodal = {}, .cache_salt = {}};
  if (start == 0) {
    content.cache_salt = extra.cache_salt;
  }
  const auto& ranges = extra.multimodal;
  auto first = std::ranges::find_if(ranges, [&](const MultimodalRange& r) { return r.offset + r.num_tokens > start; });
  auto last = std::find_if(first, ranges.end(), [&](const MultimodalRange& r) { return r.offset >= start + num_tokens; });
  content.multimodal = {first, last};
  return content;
}

Sha256BlockHasher::Sha256BlockHasher(std::string_view seed) {
  put(Tag::root, seed);
  root_ = finish();
}

BlockHash Sha256BlockHasher::hash(const BlockHash& parent, const BlockContent& content) {
  put_bytes(parent.bytes.data(), parent.bytes.size());
  put(Tag::tokens, {reinterpret_cast<const char*>(content.tokens.data()), content.tokens.size_bytes()});
  if (!content.lora_name.empty()) {
    put(Tag::lora, content.lora_name);
  }
  for (const MultimodalRange& range : content.multimodal) {
    put(Tag::multimodal, range, content.start);
  }
  if (!content.cache_salt.empty()) {
    put(Tag::salt, content.cache_salt);
  }
  return finish();
}

void Sha256BlockHasher::put(Tag tag, std::string_view text) {
  put_bytes(&tag, 1);
  put_u32(static_cast<std::uint32_t>(text.size()));
  put_bytes(text.data(), text.size());
}

void Sha256BlockHasher::put(Tag tag, const MultimodalRange& range, std::uint32_t start) {
  put(tag, range.identifier);
  // Relative to the block, and negative (modulo 2^32) where the item began in an earlier one.
  put_u32(range.offset - start);
}

void Sha256BlockHasher::put_u32(std::uint32_t value) {
  put_bytes(&value, sizeof value);
}

void Sha256BlockHasher::put_bytes(const void* data, std::size_t size) {
  const auto* bytes = static_cast<const std::byte*>(data);
  buffer_.insert(buffer_.end(), bytes, bytes + size);
}

BlockHash Sha256BlockHasher::finish() {
  sha_.update(buffer_);
  buffer_.clear();
  return {sha_.finish()};
}

}  // namespace quire
