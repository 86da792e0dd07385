#pragma once
// Scales images as Pillow does (Image.resize of 8-bit RGB), bit for bit: two passes, across and down, with fixed-point weights.
#include <cstdint>

#include "media/image.h"

namespace quire {

// Pillow's numbers of the filters, as in preprocessor_config.json.
enum class ResampleFilter : std::uint8_t { lanczos = 1, bilinear = 2, bicubic = 3, box = 4, hamming = 5 };

// Returns the scaled image. The image and the new size must have at least one pixel.
RgbImage resample(const RgbImage& image, std::uint32_t width, std::uint32_t height, ResampleFilter filter);

// The part of the scaled image to compute. The cost depends on the size of the part, not of the whole scaled image.
struct CropRect {
  std::uint32_t left = 0, top = 0, width = 0, height = 0;
};
RgbImage resample(const RgbImage& image, std::uint32_t width, std::uint32_t height, ResampleFilter filter, const CropRect& part);

}  // namespace quire
