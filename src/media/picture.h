#pragma once
// Pictures from outside, decoded: PNG, JPEG, WebP and the first frame of a GIF, as Pillow's Image.convert("RGB") gives them. Nothing they
// say is trusted: their size is read first, and memory for their pixels is taken when it has been found to be within bounds.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quire/base/error.h"

namespace quire {

// Rows from the top, pixels from the left, 8 bits each of red, green and blue.
struct Picture {
  std::uint32_t width = 0, height = 0;
  std::vector<std::uint8_t> rgb;

  friend bool operator==(const Picture&, const Picture&) = default;
};

enum class PictureFormat : std::uint8_t { png, jpeg, webp, gif };

// What the first bytes of a file say.
struct PictureHead {
  PictureFormat format = PictureFormat::png;
  std::uint32_t width = 0, height = 0;
};

inline constexpr std::uint32_t kMaxPictureSide = 16'384;                     // pixels
inline constexpr std::uint64_t kMaxPicturePixels = std::uint64_t{1} << 25U;  // 96 MiB of them

// Whether this build decodes pictures.
[[nodiscard]] bool has_pictures();

// Both: any thread. Errors: `unsupported` (another format, CMYK, an animated WebP, a build without pictures), `too_large`,
// `invalid_argument` (damaged, cut, without pixels); no field.
Result<PictureHead> read_picture_head(std::span<const std::byte> file);
Result<Picture> decode_picture(std::span<const std::byte> file);

}  // namespace quire
