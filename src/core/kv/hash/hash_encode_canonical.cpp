#include "base/check.h"
#include "core/kv/hash/hash_encode.h"

namespace quire {
namespace {

// These numbers are part of every block hash. A number must never be reused for another field.
enum class Tag : std::uint8_t { root = 1, tokens = 2, lora = 3, multimodal = 4, salt = 5, embeds = 6 };

// Writes tag and length before the bytes, so that different inputs never have the same encoding.
void put_field(Tag tag, std::span<const std::uint8_t> bytes, HashBytes& out) {
  out.put(static_cast<std::uint8_t>(tag));
  out.put(little_endian<4>(bytes.size()));
  out.put(bytes);
}

void put_tokens(std::span<const TokenId> tokens, HashBytes& out) {
  QUIRE_CHECK(tokens.size_bytes() <= UINT32_MAX, "the length fits into 32 bits");
  out.put(static_cast<std::uint8_t>(Tag::tokens));
  out.put(little_endian<4>(tokens.size_bytes()));
  for (TokenId token : tokens) out.put_low_bytes(static_cast<std::uint32_t>(token), 4);
}

}  // namespace

void encode_canonical(std::span<const std::uint8_t> parent, const HashInput& input, HashBytes& out) {
  out.clear();
  out.put(parent);
  put_tokens(input.tokens, out);
  if (!input.lora_name.empty()) put_field(Tag::lora, bytes_of(input.lora_name), out);
  for (const MultimodalFeature& feature : input.multimodal) {
    if (input.counts(feature)) {
      put_field(Tag::multimodal, bytes_of(feature.identifier), out);
      out.put(little_endian<4>(static_cast<std::uint64_t>(input.placed(feature))));
    }
  }
  if (!input.cache_salt.empty()) put_field(Tag::salt, bytes_of(input.cache_salt), out);
  if (input.embeds_digest) put_field(Tag::embeds, *input.embeds_digest, out);
}

void encode_canonical(std::string_view text, HashBytes& out) {
  out.clear();
  put_field(Tag::root, bytes_of(text), out);
}

}  // namespace quire
