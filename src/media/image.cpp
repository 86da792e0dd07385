// Detects the format of an image, and checks its size before a library reads more than its header.
#include "media/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "media/image_formats.h"

namespace quire {
namespace {

bool has_signature(FileBytes file, std::string_view text, std::size_t at = 0) {
  return file.size() >= at + text.size() && std::memcmp(file.data() + at, text.data(), text.size()) == 0;
}

Result<ImageHeader> read_header_by_signature(FileBytes file) {
  if (has_signature(file, "\x89PNG\r\n\x1a\n")) return read_png_header(file);
  if (has_signature(file, "\xff\xd8\xff")) return read_jpeg_header(file);
  if (has_signature(file, "RIFF") && has_signature(file, "WEBP", 8)) return read_webp_header(file);
  if (has_signature(file, "GIF87a") || has_signature(file, "GIF89a")) return read_gif_header(file);
  if (file.empty()) return fail(ErrorCode::invalid_argument, "", "is empty", "send an image");
  return fail(ErrorCode::unsupported, "", "is not a PNG, JPEG, WebP or GIF image", "send an image in one of these formats");
}

}  // namespace

Result<ImageHeader> read_image_header(FileBytes file) {
  auto head = read_header_by_signature(file);
  if (!head) return head;
  if (head->width == 0 || head->height == 0)
    return fail(ErrorCode::invalid_argument, "", "has a width or height of 0 pixels", "send an image with at least one pixel");
  const std::uint64_t pixels = std::uint64_t{head->width} * head->height;
  if (std::max(head->width, head->height) > kMaxImageSide || pixels > kMaxImagePixels)
    return fail(ErrorCode::too_large, "", fmt::format("has {} x {} pixels", head->width, head->height),
                fmt::format("send at most {} pixels per side and {} pixels in total", kMaxImageSide, kMaxImagePixels));
  return head;
}

Result<RgbImage> decode_image(FileBytes file) {
  const auto head = read_image_header(file);
  if (!head) return std::unexpected(head.error());
  switch (head->format) {
    case ImageFormat::png:
      return decode_png(file, *head);
    case ImageFormat::jpeg:
      return decode_jpeg(file, *head);
    case ImageFormat::webp:
      return decode_webp(file, *head);
    case ImageFormat::gif:
      break;
  }
  return decode_gif(file, *head);
}

RgbImage make_black_image(const ImageHeader& head) {
  return {head.width, head.height, std::vector<std::uint8_t>(std::size_t{3} * head.width * head.height)};
}

void blend_onto_white(std::span<const std::uint8_t> rgba, std::uint8_t* rgb) {
  for (std::size_t i = 0; i + 4 <= rgba.size(); i += 4) {
    const unsigned alpha = rgba[i + 3];
    for (std::size_t channel = 0; channel < 3; ++channel) {
      const unsigned sum = 255 * (255 - alpha) + rgba[i + channel] * alpha + 128;
      *rgb++ = static_cast<std::uint8_t>(((sum >> 8U) + sum) >> 8U);
    }
  }
}

std::unexpected<Error> corrupted_image_error(const char* format, const char* what) {
  return fail(ErrorCode::invalid_argument, "", fmt::format("is a corrupted {}: {}", format, what), "send the complete file");
}

}  // namespace quire
