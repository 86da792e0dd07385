#include <webp/decode.h>

#include "media/image_formats.h"

namespace quire {
namespace {

const std::uint8_t* webp_bytes(FileBytes file) {
  return reinterpret_cast<const std::uint8_t*>(file.data());
}

}  // namespace

Result<ImageHeader> read_webp_header(FileBytes file) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(webp_bytes(file), file.size(), &features) != VP8_STATUS_OK)
    return corrupted_image_error("WebP", "the header cannot be read");
  if (features.has_animation != 0) return fail(ErrorCode::unsupported, "", "is an animated WebP, which is not supported", "send one frame");
  return ImageHeader{ImageFormat::webp, static_cast<std::uint32_t>(features.width), static_cast<std::uint32_t>(features.height)};
}

Result<RgbImage> decode_webp(FileBytes file, const ImageHeader& head) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(webp_bytes(file), file.size(), &features) != VP8_STATUS_OK)
    return corrupted_image_error("WebP", "the header cannot be read");
  RgbImage image = make_black_image(head);
  const std::size_t pixels = image.rgb.size() / 3;
  if (features.has_alpha == 0) {
    const int stride = static_cast<int>(3 * head.width);
    if (WebPDecodeRGBInto(webp_bytes(file), file.size(), image.rgb.data(), image.rgb.size(), stride) == nullptr)
      return corrupted_image_error("WebP", "the pixels cannot be decoded");
    return image;
  }
  std::vector<std::uint8_t> wide(4 * pixels);
  if (WebPDecodeRGBAInto(webp_bytes(file), file.size(), wide.data(), wide.size(), static_cast<int>(4 * head.width)) == nullptr)
    return corrupted_image_error("WebP", "the pixels cannot be decoded");
  blend_onto_white(wide, image.rgb.data());
  return image;
}

}  // namespace quire
