#include "base/base64.h"

#include <openssl/evp.h>

#include <algorithm>

namespace quire {

std::string base64_of(std::span<const std::byte> bytes) {
  // Lengths are ints there.
  constexpr std::size_t kPart = std::size_t{3} << 20U;
  std::string text;
  for (std::size_t begin = 0; begin < bytes.size(); begin += kPart) {
    const std::span<const std::byte> part = bytes.subspan(begin, std::min(kPart, bytes.size() - begin));
    const std::size_t size = text.size(), added = (part.size() + 2) / 3 * 4;
    text.resize(size + added + 1);  // it ends with a zero
    EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data() + size), reinterpret_cast<const unsigned char*>(part.data()),
                    static_cast<int>(part.size()));
    text.resize(size + added);
  }
  return text;
}

}  // namespace quire
