#include "core/journal/question.h"

namespace quire {

SeamQuestion& SeamQuestion::add(std::uint64_t value) {
  for (int i = 0; i < 8; ++i) digest_ = (digest_ ^ ((value >> (8 * i)) & 0xFFU)) * 0x100000001b3U;
  return *this;
}

SeamQuestion& SeamQuestion::add(std::string_view text) {
  add(text.size());
  for (const char c : text) digest_ = (digest_ ^ static_cast<std::uint8_t>(c)) * 0x100000001b3U;
  return *this;
}

SeamQuestion& SeamQuestion::add(std::span<const TokenId> tokens) {
  add(tokens.size());
  if (!with_tokens_) return *this;
  for (const TokenId token : tokens) add(static_cast<std::uint64_t>(token));
  return *this;
}

SeamQuestion& SeamQuestion::add(std::span<const RequestId> ids) {
  add(ids.size());
  for (const RequestId id : ids) add(id.value);
  return *this;
}

SeamQuestion& SeamQuestion::add(const RequestView& request) {
  return add(request.id.value)
      .add(request.tokens.size())
      .add(request.num_computed_tokens)
      .add(static_cast<std::uint64_t>(request.status))
      .add(request.num_preemptions);
}

SeamQuestion& SeamQuestion::add(const BlockHash* parent, const HashInput& input) {
  if (parent != nullptr)
    for (const std::uint8_t byte : parent->bytes) add(byte);
  add(input.tokens).add(input.start).add(input.lora_name).add(input.lora_path).add(input.cache_salt);
  for (const MultimodalFeature& feature : input.multimodal) add(feature.identifier).add(feature.position.offset());
  if (input.embeds_digest && with_tokens_)
    for (const std::uint8_t byte : *input.embeds_digest) add(byte);
  return *this;
}

}  // namespace quire
