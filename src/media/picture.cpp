// Which format it is, and whether it is small enough: before any library sees more than the head.
#include "media/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "media/picture_formats.h"

namespace quire {
namespace {

bool begins(FileBytes file, std::string_view text, std::size_t at = 0) {
  return file.size() >= at + text.size() && std::memcmp(file.data() + at, text.data(), text.size()) == 0;
}

Result<PictureHead> read_any_head(FileBytes file) {
  if (begins(file, "\x89PNG\r\n\x1a\n")) return read_png_head(file);
  if (begins(file, "\xff\xd8\xff")) return read_jpeg_head(file);
  if (begins(file, "RIFF") && begins(file, "WEBP", 8)) return read_webp_head(file);
  if (begins(file, "GIF87a") || begins(file, "GIF89a")) return read_gif_head(file);
  if (file.empty()) return fail(ErrorCode::invalid_argument, "", "has no bytes", "send a picture");
  return fail(ErrorCode::unsupported, "", "is no PNG, JPEG, WebP or GIF", "send one of these");
}

}  // namespace

Result<PictureHead> read_picture_head(FileBytes file) {
  auto head = read_any_head(file);
  if (!head) return head;
  if (head->width == 0 || head->height == 0) return fail(ErrorCode::invalid_argument, "", "has no pixels", "send a picture with some");
  const std::uint64_t pixels = std::uint64_t{head->width} * head->height;
  if (std::max(head->width, head->height) > kMaxPictureSide || pixels > kMaxPicturePixels)
    return fail(ErrorCode::too_large, "", fmt::format("has {} x {} pixels", head->width, head->height),
                fmt::format("send at most {} a side, and {} in all", kMaxPictureSide, kMaxPicturePixels));
  return head;
}

Result<Picture> decode_picture(FileBytes file) {
  const auto head = read_picture_head(file);
  if (!head) return std::unexpected(head.error());
  switch (head->format) {
    case PictureFormat::png:
      return decode_png(file, *head);
    case PictureFormat::jpeg:
      return decode_jpeg(file, *head);
    case PictureFormat::webp:
      return decode_webp(file, *head);
    case PictureFormat::gif:
      break;
  }
  return decode_gif(file, *head);
}

Picture make_picture(const PictureHead& head) {
  return {head.width, head.height, std::vector<std::uint8_t>(std::size_t{3} * head.width * head.height)};
}

void lay_on_white(std::span<const std::uint8_t> rgba, std::uint8_t* rgb) {
  for (std::size_t i = 0; i + 4 <= rgba.size(); i += 4) {
    const unsigned alpha = rgba[i + 3];
    for (std::size_t channel = 0; channel < 3; ++channel) {
      const unsigned sum = 255 * (255 - alpha) + rgba[i + channel] * alpha + 128;
      *rgb++ = static_cast<std::uint8_t>(((sum >> 8U) + sum) >> 8U);
    }
  }
}

std::unexpected<Error> refuse_damaged(const char* format, const char* what) {
  return fail(ErrorCode::invalid_argument, "", fmt::format("is a damaged {}: {}", format, what), "send it whole");
}

}  // namespace quire
