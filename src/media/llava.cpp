// The scaled picture may be 16,384 times as long as it is wide: what is not in its middle is never made.
#include "media/llava.h"

#include <string>
#include <utility>

#include "media/resample.h"

namespace quire {
namespace {

constexpr std::string_view kLlavaMark = "<image>";

Result<PictureShape> llava_shape(std::uint32_t /*width*/, std::uint32_t /*height*/, const PictureInfo& info) {
  return PictureShape{{}, 1, info.tile_side, info.tile_side, info.tile_tokens};
}

std::string llava_text(const PictureShape& shape, const PictureInfo& /*info*/) {
  std::string text;
  for (std::uint64_t i = 0; i < shape.num_tokens(); ++i) text += kLlavaMark;
  return text;
}

// As the processor makes it: cut to an integer in double precision.
std::uint32_t longer_side(std::uint32_t shortest, std::uint32_t longer, std::uint32_t shorter) {
  return static_cast<std::uint32_t>(static_cast<double>(std::uint64_t{shortest} * longer) / shorter);
}

}  // namespace

PictureTiles llava_tiles(const Picture& picture, const PictureInfo& info) {
  const auto filter = static_cast<PictureFilter>(info.filter);
  const std::uint32_t side = info.tile_side;
  std::uint32_t width = side, height = side;
  if (info.shortest_edge > 0) {
    width = height = info.shortest_edge;
    if (picture.width <= picture.height)
      height = longer_side(info.shortest_edge, picture.height, picture.width);
    else
      width = longer_side(info.shortest_edge, picture.width, picture.height);
  }
  Picture middle = resample(picture, width, height, filter, {(width - side) / 2, (height - side) / 2, side, side});
  return {.count = 1, .side = side, .rgb = std::move(middle.rgb)};
}

constexpr PictureProcessor kLlava{"llava", kLlavaMark, llava_shape, llava_tiles, llava_text};

}  // namespace quire
