#include "media/data_url.h"

#include "base/base64.h"

namespace quire {

Result<std::vector<std::byte>> read_base64(std::string_view text) {
  auto bytes = from_base64(text);
  if (!bytes) return fail(ErrorCode::invalid_argument, "", "is no base64", "send A-Z, a-z, 0-9, + and /, padded with =");
  if (bytes->empty()) return fail(ErrorCode::invalid_argument, "", "has no bytes", "send a picture");
  return *std::move(bytes);
}

// What kind of file it is the file says itself.
Result<std::vector<std::byte>> read_data_url(std::string_view url) {
  if (url.starts_with("http://") || url.starts_with("https://") || url.starts_with("file:"))
    return fail(ErrorCode::unsupported, "", "is an address, and this server fetches nothing",
                "send the picture itself: data:image/png;base64,...");
  constexpr std::string_view kScheme = "data:";
  const std::size_t comma = url.find(',');
  if (!url.starts_with(kScheme) || comma == std::string_view::npos)
    return fail(ErrorCode::invalid_argument, "", "is no data URL", "send data:image/png;base64,...");
  if (!url.substr(0, comma).ends_with(";base64"))
    return fail(ErrorCode::invalid_argument, "", "is a data URL without base64", "send data:image/png;base64,...");
  return read_base64(url.substr(comma + 1));
}

}  // namespace quire
