#include "base/base64.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace quire {
namespace {

constexpr std::uint8_t kNone = 64;

constexpr std::array<std::uint8_t, 256> kValues = [] {
  std::array<std::uint8_t, 256> values{};
  values.fill(kNone);
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (std::size_t i = 0; i < kLetters.size(); ++i) values[static_cast<unsigned char>(kLetters[i])] = static_cast<std::uint8_t>(i);
  return values;
}();

std::uint32_t value_of(char letter) {
  return kValues[static_cast<unsigned char>(letter)];
}

}  // namespace

std::string base64_of(std::span<const std::byte> bytes) {
  // Size of a part, because OpenSSL's lengths are int.
  constexpr std::size_t kPart = std::size_t{3} << 20U;
  std::string text;
  for (std::size_t begin = 0; begin < bytes.size(); begin += kPart) {
    const std::span<const std::byte> part = bytes.subspan(begin, std::min(kPart, bytes.size() - begin));
    const std::size_t size = text.size(), added = (part.size() + 2) / 3 * 4;
    text.resize(size + added + 1);  // EVP_EncodeBlock() writes a zero at the end
    EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data() + size), reinterpret_cast<const unsigned char*>(part.data()),
                    static_cast<int>(part.size()));
    text.resize(size + added);
  }
  return text;
}

std::optional<std::vector<std::byte>> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  const std::size_t num_padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  text.remove_suffix(num_padding);
  std::vector<std::byte> bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  std::uint32_t bits = 0, num_bits = 0, worst = 0;
  for (const char letter : text) {
    const std::uint32_t value = value_of(letter);
    worst |= value;
    bits = bits << 6U | (value & 63U);
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes.push_back(static_cast<std::byte>(bits >> num_bits & 0xFFU));
  }
  if ((worst & kNone) != 0 || (bits & ((1U << num_bits) - 1)) != 0) return std::nullopt;
  return bytes;
}

}  // namespace quire
