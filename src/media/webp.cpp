#include <webp/decode.h>

#include "media/picture_formats.h"

namespace quire {
namespace {

const std::uint8_t* webp_bytes(FileBytes file) {
  return reinterpret_cast<const std::uint8_t*>(file.data());
}

}  // namespace

Result<PictureHead> read_webp_head(FileBytes file) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(webp_bytes(file), file.size(), &features) != VP8_STATUS_OK) return refuse_damaged("WebP", "its head cannot be read");
  if (features.has_animation != 0) return fail(ErrorCode::unsupported, "", "is an animated WebP", "send one of its frames");
  return PictureHead{PictureFormat::webp, static_cast<std::uint32_t>(features.width), static_cast<std::uint32_t>(features.height)};
}

Result<Picture> decode_webp(FileBytes file, const PictureHead& head) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(webp_bytes(file), file.size(), &features) != VP8_STATUS_OK) return refuse_damaged("WebP", "its head cannot be read");
  Picture picture = make_picture(head);
  const std::size_t pixels = picture.rgb.size() / 3;
  if (features.has_alpha == 0) {
    const int stride = static_cast<int>(3 * head.width);
    if (WebPDecodeRGBInto(webp_bytes(file), file.size(), picture.rgb.data(), picture.rgb.size(), stride) == nullptr)
      return refuse_damaged("WebP", "its pixels cannot be read");
    return picture;
  }
  std::vector<std::uint8_t> wide(4 * pixels);
  if (WebPDecodeRGBAInto(webp_bytes(file), file.size(), wide.data(), wide.size(), static_cast<int>(4 * head.width)) == nullptr)
    return refuse_damaged("WebP", "its pixels cannot be read");
  lay_on_white(wide, picture.rgb.data());
  return picture;
}

}  // namespace quire
