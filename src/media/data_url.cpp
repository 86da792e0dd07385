#include "media/data_url.h"

#include "base/base64.h"

namespace quire {

Result<std::vector<std::byte>> read_base64(std::string_view text) {
  auto bytes = from_base64(text);
  if (!bytes)
    return fail(ErrorCode::invalid_argument, "", "is not valid base64", "send base64 text: A-Z, a-z, 0-9, + and /, padded with =");
  if (bytes->empty()) return fail(ErrorCode::invalid_argument, "", "is empty", "send an image");
  return *std::move(bytes);
}

// Ignores the media type of the URL, because the file's first bytes determine its format.
Result<std::vector<std::byte>> read_data_url(std::string_view url) {
  if (url.starts_with("http://") || url.starts_with("https://") || url.starts_with("file:"))
    return fail(ErrorCode::unsupported, "", "is a URL, and this server does not fetch images",
                "send the image itself: data:image/png;base64,...");
  constexpr std::string_view kScheme = "data:";
  const std::size_t comma = url.find(',');
  if (!url.starts_with(kScheme) || comma == std::string_view::npos)
    return fail(ErrorCode::invalid_argument, "", "is not a data URL", "send data:image/png;base64,...");
  if (!url.substr(0, comma).ends_with(";base64"))
    return fail(ErrorCode::invalid_argument, "", "is a data URL without base64", "send data:image/png;base64,...");
  return read_base64(url.substr(comma + 1));
}

}  // namespace quire
