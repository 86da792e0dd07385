// Encodes CBOR (RFC 8949) as cbor2 does in canonical form: the bytes that vLLM's sha256_cbor and xxhash_cbor digest. hash_function.cpp
// calls it for each full block, on the thread that computes hashes. If one byte changes, every block hash changes.
#include "base/check.h"
#include "core/kv/hash/hash_encode.h"

namespace quire {
namespace {

enum class Major : std::uint8_t { unsigned_integer = 0, negative_integer = 1, bytes = 2, text = 3, array = 4 };

constexpr std::uint8_t kNull = 0xF6;

// Writes the shortest head for a value below 2^32 (RFC 8949, 3), without a branch.
void put_head(Major major, std::uint32_t value, HashBytes& out) {
  constexpr std::array<std::uint8_t, 4> kInfo{0, 24, 25, 26};
  constexpr std::array<std::uint8_t, 4> kNumBytes{0, 1, 2, 4};
  const std::size_t size = std::size_t{value > 23} + std::size_t{value > 0xFF} + std::size_t{value > 0xFFFF};
  const std::uint32_t first = static_cast<std::uint32_t>(major) << 5 | kInfo[size] | (size == 0 ? value : 0);
  const std::uint64_t big_endian_value = std::uint64_t{__builtin_bswap32(value)} << 8 >> (32 - 8 * kNumBytes[size]);
  out.put_low_bytes(first | (big_endian_value & ~std::uint64_t{0xFF}), std::size_t{1} + kNumBytes[size]);
}

void put_integer(std::int32_t value, HashBytes& out) {
  const std::int32_t sign = value >> 31;
  put_head(sign == 0 ? Major::unsigned_integer : Major::negative_integer, static_cast<std::uint32_t>(value ^ sign), out);
}

// Writes a position in tokens: 32 bits and a sign.
void put_position(std::int64_t value, HashBytes& out) {
  const bool negative = value < 0;
  QUIRE_CHECK((negative ? ~value : value) <= std::int64_t{UINT32_MAX}, "a position fits into 32 bits and a sign");
  put_head(negative ? Major::negative_integer : Major::unsigned_integer, static_cast<std::uint32_t>(negative ? ~value : value), out);
}

void put_bytes(Major major, std::span<const std::uint8_t> bytes, HashBytes& out) {
  put_head(major, static_cast<std::uint32_t>(bytes.size()), out);
  out.put(bytes);
}

void put_tag(std::uint32_t num_parts, std::string_view tag, HashBytes& out) {
  put_head(Major::array, num_parts, out);
  put_bytes(Major::text, bytes_of(tag), out);
}

void put_tagged_keys(const HashInput& input, HashBytes& out) {
  if (!input.lora_name.empty()) {
    put_tag(3, "lora", out);
    put_bytes(Major::text, bytes_of(input.lora_name), out);
    put_bytes(Major::text, bytes_of(input.lora_path), out);
  }
  for (const MultimodalFeature& feature : input.multimodal) {
    if (input.counts(feature)) {
      put_tag(3, "mm", out);
      put_bytes(Major::text, bytes_of(feature.identifier), out);
      put_position(input.placed(feature), out);
    }
  }
  if (!input.cache_salt.empty()) {
    put_tag(2, "cache_salt", out);
    put_bytes(Major::text, bytes_of(input.cache_salt), out);
  }
  if (input.embeds_digest) {
    put_tag(2, "prompt_embeds", out);
    put_bytes(Major::bytes, *input.embeds_digest, out);
  }
}

// Writes vLLM's generate_block_hash_extra_keys: the adapter, the multimodal items with their positions, the salt and the digest of the
// embeddings. Writes null if the input has no extra keys.
void put_extra_keys(const HashInput& input, HashBytes& out) {
  const std::size_t num_keys = input.num_extra_keys();
  if (num_keys == 0) {
    out.put(kNull);
    return;
  }
  put_head(Major::array, static_cast<std::uint32_t>(num_keys), out);
  if (input.tagged_keys) {
    put_tagged_keys(input, out);
    return;
  }
  if (!input.lora_name.empty()) put_bytes(Major::text, bytes_of(input.lora_name), out);
  for (const MultimodalFeature& feature : input.multimodal) {
    if (input.counts(feature)) {
      put_head(Major::array, 2, out);
      put_bytes(Major::text, bytes_of(feature.identifier), out);
      put_position(input.placed(feature), out);
    }
  }
  if (!input.cache_salt.empty()) put_bytes(Major::text, bytes_of(input.cache_salt), out);
  if (input.embeds_digest) put_bytes(Major::bytes, *input.embeds_digest, out);
}

}  // namespace

void encode_cbor(std::span<const std::uint8_t> parent, const HashInput& input, HashBytes& out) {
  out.clear();
  put_head(Major::array, 3, out);
  put_bytes(Major::bytes, parent, out);
  QUIRE_CHECK(input.tokens.size() <= UINT32_MAX, "the number of tokens fits into 32 bits");
  put_head(Major::array, static_cast<std::uint32_t>(input.tokens.size()), out);
  for (TokenId token : input.tokens) put_integer(token, out);
  put_extra_keys(input, out);
}

void encode_cbor(std::string_view text, HashBytes& out) {
  out.clear();
  put_bytes(Major::text, bytes_of(text), out);
}

}  // namespace quire
