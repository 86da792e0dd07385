#pragma once
// Scaling as Pillow does it (Image.resize of 8-bit RGB), bit for bit: two passes, across and down, with weights in fixed point.
#include <cstdint>

#include "media/picture.h"

namespace quire {

// Pillow's numbers of them, as preprocessor_config.json has them.
enum class PictureFilter : std::uint8_t { lanczos = 1, bilinear = 2, bicubic = 3, box = 4, hamming = 5 };

// Both sizes have pixels.
Picture resample(const Picture& picture, std::uint32_t width, std::uint32_t height, PictureFilter filter);

// What of the scaled picture is made: it costs what the part costs, however large the whole would be.
struct PicturePart {
  std::uint32_t left = 0, top = 0, width = 0, height = 0;
};
Picture resample(const Picture& picture, std::uint32_t width, std::uint32_t height, PictureFilter filter, const PicturePart& part);

}  // namespace quire
