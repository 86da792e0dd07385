#pragma once
// Decodes images from clients (PNG, JPEG, WebP and the first frame of a GIF), with the same result as Pillow's Image.convert("RGB"). The
// files are not trusted: the size is read and checked before memory for the pixels is allocated.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quire/base/error.h"

namespace quire {

// An image in rows from the top, with 8 bits each of red, green and blue per pixel.
struct RgbImage {
  std::uint32_t width = 0, height = 0;
  std::vector<std::uint8_t> rgb;

  friend bool operator==(const RgbImage&, const RgbImage&) = default;
};

enum class ImageFormat : std::uint8_t { png, jpeg, webp, gif };

// Properties of an image that the first bytes of its file state.
struct ImageHeader {
  ImageFormat format = ImageFormat::png;
  std::uint32_t width = 0, height = 0;
};

inline constexpr std::uint32_t kMaxImageSide = 16'384;                     // pixels
inline constexpr std::uint64_t kMaxImagePixels = std::uint64_t{1} << 25U;  // 96 MiB of RGB bytes

// Returns whether this build can decode images.
[[nodiscard]] bool has_image_decoders();

// Read the header of an image file, and decode it. May run on any thread. Errors, without a field: `unsupported` (another format, CMYK, an
// animated WebP, a build without the image libraries), `too_large`, `invalid_argument` (damaged, truncated, or without pixels).
Result<ImageHeader> read_image_header(std::span<const std::byte> file);
Result<RgbImage> decode_image(std::span<const std::byte> file);

}  // namespace quire
