#include "core/kv/hash_bytes.h"
#include "core/kv/hash_encode.h"

namespace quire {
namespace {

enum class Major : std::uint8_t { unsigned_integer = 0, negative_integer = 1, bytes = 2, text = 3, array = 4 };

constexpr std::uint8_t kNull = 0xF6;

// The shortest head of a value (RFC 8949, 3).
void put_head(Major major, std::uint64_t value, ByteWriter& out) {
  const auto type = static_cast<std::uint8_t>(static_cast<unsigned>(major) << 5);
  if (value < 24) {
    out.put(static_cast<std::uint8_t>(type | value));
  } else if (value <= 0xFF) {
    out.put(std::array{static_cast<std::uint8_t>(type | 24), static_cast<std::uint8_t>(value)});
  } else if (value <= 0xFFFF) {
    out.put(static_cast<std::uint8_t>(type | 25));
    out.put(big_endian<2>(value));
  } else if (value <= 0xFFFFFFFF) {
    out.put(static_cast<std::uint8_t>(type | 26));
    out.put(big_endian<4>(value));
  } else {
    out.put(static_cast<std::uint8_t>(type | 27));
    out.put(big_endian<8>(value));
  }
}

void put_integer(std::int64_t value, ByteWriter& out) {
  const auto bits = static_cast<std::uint64_t>(value);
  value < 0 ? put_head(Major::negative_integer, ~bits, out) : put_head(Major::unsigned_integer, bits, out);
}

void put_bytes(Major major, std::span<const std::uint8_t> bytes, ByteWriter& out) {
  put_head(major, bytes.size(), out);
  out.put(bytes);
}

void put_extra_keys(const HashInput& input, ByteWriter& out) {
  const std::size_t num_keys = input.num_extra_keys();
  if (num_keys == 0) {
    out.put(kNull);
    return;
  }
  put_head(Major::array, num_keys, out);
  if (!input.lora_name.empty()) {
    put_bytes(Major::text, bytes_of(input.lora_name), out);
  }
  for (const MultimodalFeature& feature : input.multimodal) {
    if (input.counts(feature)) {
      put_head(Major::array, 2, out);
      put_bytes(Major::text, bytes_of(feature.identifier), out);
      put_integer(input.placed(feature), out);
    }
  }
  if (!input.cache_salt.empty()) {
    put_bytes(Major::text, bytes_of(input.cache_salt), out);
  }
  if (input.embeds_digest) {
    put_bytes(Major::bytes, *input.embeds_digest, out);
  }
}

}  // namespace

void encode_cbor(std::span<const std::uint8_t> parent, const HashInput& input, HashBytes& out) {
  ByteWriter writer(out);
  put_head(Major::array, 3, writer);
  put_bytes(Major::bytes, parent, writer);
  put_head(Major::array, input.tokens.size(), writer);
  for (TokenId token : input.tokens) {
    put_integer(token, writer);
  }
  put_extra_keys(input, writer);
  writer.finish();
}

void encode_cbor(std::string_view text, HashBytes& out) {
  ByteWriter writer(out);
  put_bytes(Major::text, bytes_of(text), writer);
  writer.finish();
}

}  // namespace quire
