#include "format/quote.h"

#include "base/append_format.h"

namespace quire {

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 64;
  std::string out = "'";
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte > 0x7e)
      append_format(out, "\\x{:02x}", byte);
    else
      out += c;
  }
  out += text.size() > kLongest ? "...'" : "'";
  return out;
}

}  // namespace quire
