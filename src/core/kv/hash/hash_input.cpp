#include "core/kv/hash/hash_input.h"

#include <algorithm>

#include "base/check.h"
#include "base/digest.h"

namespace quire {
namespace {

Sha256Digest digest_of_rows(const PromptEmbeds& embeds, std::size_t start, std::size_t end) {
  QUIRE_CHECK(start < end && embeds.bytes_per_token > 0, "a block has rows of embeddings");
  const auto clip = [&](std::size_t row) { return std::min(row * embeds.bytes_per_token, embeds.data.size()); };
  return Sha256::of(embeds.data.subspan(clip(start), clip(end) - clip(start)));
}

}  // namespace

HashInputs::HashInputs(const RequestContent& content, std::uint32_t block_size, std::size_t first_block)
    : content_(content), block_size_(block_size), start_(first_block * block_size) {
  QUIRE_CHECK(block_size > 0, "the block size is positive");
  if (first_block > 0 && !content.multimodal.empty() && !content.tagged_keys) item_ = content.multimodal.size() - 1;
}

std::optional<HashInput> HashInputs::next() {
  const std::size_t end = start_ + block_size_;
  if (end > content_.tokens.size()) return std::nullopt;
  QUIRE_CHECK(start_ <= UINT32_MAX, "the start of a block fits into 32 bits");
  HashInput input{.tokens = content_.tokens.subspan(start_, block_size_),
                  .start = static_cast<std::uint32_t>(start_),
                  .lora_name = content_.lora_name,
                  .multimodal = items(start_, end),
                  .cache_salt = start_ == 0 ? content_.cache_salt : std::string_view(),
                  .embeds_digest = std::nullopt,
                  .lora_path = content_.lora_path,
                  .tagged_keys = content_.tagged_keys};
  if (content_.prompt_embeds.bytes_per_token != 0) input.embeds_digest = digest_of_rows(content_.prompt_embeds, start_, end);
  start_ = end;
  return input;
}

std::span<const MultimodalFeature> HashInputs::items(std::size_t start, std::size_t end) {
  QUIRE_CHECK(start < end && item_ <= content_.multimodal.size(), "blocks are visited from left to right");
  const std::span<const MultimodalFeature> features = content_.multimodal;
  if (features.empty() || features.back().position.end() <= start) return {};
  const std::size_t first = item_;
  while (item_ < features.size() && features[item_].position.offset() < end) {
    if (features[item_].position.end() > end) return features.subspan(first, item_ + 1 - first);
    ++item_;
  }
  return features.subspan(first, item_ - first);
}

}  // namespace quire
