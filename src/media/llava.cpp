// Scales and computes only the center of the image, because a scaled image may be 16,384 times as long as it is wide.
#include "media/llava.h"

#include <string>
#include <utility>

#include "media/resample.h"

namespace quire {
namespace {

constexpr std::string_view kLlavaPlaceholder = "<image>";

Result<ImageShape> llava_shape(std::uint32_t /*width*/, std::uint32_t /*height*/, const ImageInfo& info) {
  return ImageShape{{}, 1, info.tile_side, info.tile_side, info.tile_tokens};
}

std::string llava_text(const ImageShape& shape, const ImageInfo& /*info*/) {
  std::string text;
  for (std::uint64_t i = 0; i < shape.num_tokens(); ++i) text += kLlavaPlaceholder;
  return text;
}

// Returns the length of the scaled image's longer side, as transformers' CLIPImageProcessor computes it: in double precision,
// truncated to an integer.
std::uint32_t longer_side(std::uint32_t shortest, std::uint32_t longer, std::uint32_t shorter) {
  return static_cast<std::uint32_t>(static_cast<double>(std::uint64_t{shortest} * longer) / shorter);
}

}  // namespace

ImageTiles llava_tiles(const RgbImage& image, const ImageInfo& info) {
  const auto filter = static_cast<ResampleFilter>(info.filter);
  const std::uint32_t side = info.tile_side;
  std::uint32_t width = side, height = side;
  if (info.shortest_edge > 0) {
    width = height = info.shortest_edge;
    if (image.width <= image.height)
      height = longer_side(info.shortest_edge, image.height, image.width);
    else
      width = longer_side(info.shortest_edge, image.width, image.height);
  }
  RgbImage middle = resample(image, width, height, filter, {(width - side) / 2, (height - side) / 2, side, side});
  return {.count = 1, .side = side, .rgb = std::move(middle.rgb)};
}

constexpr ImageProcessor kLlavaProcessor{"llava", kLlavaPlaceholder, llava_shape, llava_tiles, llava_text};

}  // namespace quire
