// Splits an image into tiles as Idefics3's processor does. Each size is computed in the same way as in the processor: ratios in double
// precision, truncated to integers. An error of one pixel in a size would shift every pixel.
#include "media/idefics3.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "media/resample.h"

namespace quire {
namespace {

constexpr std::uint32_t kMaxLongerSide = 4096;  // maximum length of the longer side in pixels, before an image is split
constexpr std::string_view kIdefics3Placeholder = "<image>";

struct Size {
  std::uint32_t width, height;
};

std::uint32_t truncate_to_uint(double value) {
  return static_cast<std::uint32_t>(value);
}

std::uint32_t round_up_to_even(std::uint32_t value) {
  return value + value % 2;
}

std::uint32_t round_up_to_multiple(std::uint32_t value, std::uint32_t of) {
  return (value + of - 1) / of * of;
}

// Returns a size whose longer side is `edge`, with the same aspect ratio.
Size scale_longer_side(Size size, std::uint32_t edge) {
  const double ratio = static_cast<double>(size.width) / size.height;
  Size out{edge, edge};
  if (size.width >= size.height)
    out.height = std::max(round_up_to_even(truncate_to_uint(edge / ratio)), 1U);
  else
    out.width = std::max(round_up_to_even(truncate_to_uint(edge * ratio)), 1U);
  return out;
}

Size limit_longer_side(Size size, std::uint32_t most) {
  const double ratio = static_cast<double>(size.width) / size.height;
  if (size.width >= size.height && size.width > most)
    size = {most, truncate_to_uint(most / ratio)};
  else if (size.height > size.width && size.height > most)
    size = {truncate_to_uint(most * ratio), most};
  return {std::max(size.width, 1U), std::max(size.height, 1U)};
}

Size fit_to_longest_edge(Size size, const ImageInfo& info) {
  return limit_longer_side(scale_longer_side(size, info.longest_edge), kMaxLongerSide);
}

// Rounds both sides up to multiples of the tile size.
Size round_up_to_tiles(Size size, const ImageInfo& info) {
  const double ratio = static_cast<double>(size.width) / size.height;
  const std::uint32_t side = info.tile_side;
  if (size.width >= size.height) {
    const std::uint32_t width = round_up_to_multiple(size.width, side);
    return {width, round_up_to_multiple(truncate_to_uint(width / ratio), side)};
  }
  const std::uint32_t height = round_up_to_multiple(size.height, side);
  return {round_up_to_multiple(truncate_to_uint(height * ratio), side), height};
}

void add_tile(const RgbImage& from, std::uint32_t left, std::uint32_t top, std::uint32_t side, std::vector<std::uint8_t>& out) {
  const std::size_t row = std::size_t{3} * side;
  for (std::size_t y = 0; y < side; ++y) {
    const std::uint8_t* const pixels = from.rgb.data() + 3 * ((top + y) * from.width + left);
    out.insert(out.end(), pixels, pixels + row);
  }
}

Result<ImageShape> idefics3_shape(std::uint32_t width, std::uint32_t height, const ImageInfo& info) {
  const TileGrid grid = idefics3_grid(width, height, info);
  return ImageShape{grid, grid.num_tiles(), info.tile_side, info.tile_side, info.tile_tokens};
}

std::string idefics3_text(const ImageShape& shape, const ImageInfo& /*info*/) {
  return idefics3_prompt(shape.grid, shape.tile_tokens);
}

}  // namespace

TileGrid idefics3_grid(std::uint32_t width, std::uint32_t height, const ImageInfo& info) {
  QUIRE_CHECK(width > 0 && height > 0 && info.tile_side > 0 && info.longest_edge > 0, "the image and the tile have pixels");
  if (!info.splits) return {};
  const Size size = round_up_to_tiles(fit_to_longest_edge({width, height}, info), info);
  if (size.width <= info.tile_side && size.height <= info.tile_side) return {};
  return {size.height / info.tile_side, size.width / info.tile_side};
}

ImageTiles idefics3_tiles(const RgbImage& image, const ImageInfo& info) {
  const auto filter = static_cast<ResampleFilter>(info.filter);
  const std::uint32_t side = info.tile_side;
  const TileGrid grid = idefics3_grid(image.width, image.height, info);
  const Size first = fit_to_longest_edge({image.width, image.height}, info);
  RgbImage scaled = resample(image, first.width, first.height, filter);
  if (info.splits) {
    const Size second = round_up_to_tiles(first, info);
    scaled = resample(scaled, second.width, second.height, filter);
  }
  ImageTiles tiles{.count = grid.num_tiles(), .side = side, .rgb = {}};
  tiles.rgb.reserve(std::size_t{3} * side * side * tiles.count);
  for (std::uint32_t row = 0; row < grid.rows; ++row)
    for (std::uint32_t column = 0; column < grid.columns; ++column) add_tile(scaled, column * side, row * side, side, tiles.rgb);
  add_tile(resample(scaled, side, side, filter), 0, 0, side, tiles.rgb);
  return tiles;
}

std::string idefics3_prompt(TileGrid grid, std::uint32_t tile_tokens) {
  constexpr std::string_view kAround = "<fake_token_around_image>";
  std::string images;
  for (std::uint32_t i = 0; i < tile_tokens; ++i) images += kIdefics3Placeholder;
  std::string text;
  for (std::uint32_t row = 1; row <= grid.rows; ++row) {
    for (std::uint32_t column = 1; column <= grid.columns; ++column)
      text += fmt::format("{}<row_{}_col_{}>{}", kAround, row, column, images);
    text += '\n';
  }
  return fmt::format("{}{}{}<global-img>{}{}", text, grid.rows > 0 ? "\n" : "", kAround, images, kAround);
}

constexpr ImageProcessor kIdefics3Processor{"idefics3", kIdefics3Placeholder, idefics3_shape, idefics3_tiles, idefics3_text};

}  // namespace quire
