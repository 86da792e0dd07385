#pragma once
// Scaling as Pillow does it (Image.resize of 8-bit RGB), bit for bit: two passes, across and down, with weights in fixed point.
#include <cstdint>

#include "media/picture.h"

namespace quire {

// Pillow's numbers of them, as preprocessor_config.json has them.
enum class PictureFilter : std::uint8_t { lanczos = 1, bilinear = 2, bicubic = 3, box = 4, hamming = 5 };

// Both sizes have pixels.
Picture resample(const Picture& picture, std::uint32_t width, std::uint32_t height, PictureFilter filter);

}  // namespace quire
