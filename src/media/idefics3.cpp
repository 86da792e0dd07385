// How Idefics3's processor cuts a picture into tiles. Each number is made as the processor makes it, from ratios in double precision that
// are cut to integers: a size that is off by one would move every pixel.
#include "media/idefics3.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "media/resample.h"

namespace quire {
namespace {

constexpr std::uint32_t kMostSide = 4096;  // of what is cut
constexpr std::string_view kIdefics3Mark = "<image>";

struct Size {
  std::uint32_t width, height;
};

std::uint32_t cut(double value) {
  return static_cast<std::uint32_t>(value);
}

std::uint32_t even(std::uint32_t value) {
  return value + value % 2;
}

std::uint32_t up_to_multiple(std::uint32_t value, std::uint32_t of) {
  return (value + of - 1) / of * of;
}

// The longer side becomes `edge`, the other one keeps the ratio.
Size with_longest(Size size, std::uint32_t edge) {
  const double ratio = static_cast<double>(size.width) / size.height;
  Size out{edge, edge};
  if (size.width >= size.height)
    out.height = std::max(even(cut(edge / ratio)), 1U);
  else
    out.width = std::max(even(cut(edge * ratio)), 1U);
  return out;
}

Size below(Size size, std::uint32_t most) {
  const double ratio = static_cast<double>(size.width) / size.height;
  if (size.width >= size.height && size.width > most)
    size = {most, cut(most / ratio)};
  else if (size.height > size.width && size.height > most)
    size = {cut(most * ratio), most};
  return {std::max(size.width, 1U), std::max(size.height, 1U)};
}

Size first_size(Size size, const PictureInfo& info) {
  return below(with_longest(size, info.longest_edge), kMostSide);
}

// Both sides in whole tiles.
Size second_size(Size size, const PictureInfo& info) {
  const double ratio = static_cast<double>(size.width) / size.height;
  const std::uint32_t side = info.tile_side;
  if (size.width >= size.height) {
    const std::uint32_t width = up_to_multiple(size.width, side);
    return {width, up_to_multiple(cut(width / ratio), side)};
  }
  const std::uint32_t height = up_to_multiple(size.height, side);
  return {up_to_multiple(cut(height * ratio), side), height};
}

void add_tile(const Picture& from, std::uint32_t left, std::uint32_t top, std::uint32_t side, std::vector<std::uint8_t>& out) {
  const std::size_t row = std::size_t{3} * side;
  for (std::size_t y = 0; y < side; ++y) {
    const std::uint8_t* const pixels = from.rgb.data() + 3 * ((top + y) * from.width + left);
    out.insert(out.end(), pixels, pixels + row);
  }
}

Result<PictureShape> idefics3_shape(std::uint32_t width, std::uint32_t height, const PictureInfo& info) {
  const TileGrid grid = idefics3_grid(width, height, info);
  return PictureShape{grid, grid.num_tiles(), info.tile_side, info.tile_side, info.tile_tokens};
}

std::string idefics3_text(const PictureShape& shape, const PictureInfo& /*info*/) {
  return idefics3_prompt(shape.grid, shape.tile_tokens);
}

}  // namespace

TileGrid idefics3_grid(std::uint32_t width, std::uint32_t height, const PictureInfo& info) {
  QUIRE_CHECK(width > 0 && height > 0 && info.tile_side > 0 && info.longest_edge > 0, "a picture has pixels");
  if (!info.splits) return {};
  const Size size = second_size(first_size({width, height}, info), info);
  if (size.width <= info.tile_side && size.height <= info.tile_side) return {};
  return {size.height / info.tile_side, size.width / info.tile_side};
}

PictureTiles idefics3_tiles(const Picture& picture, const PictureInfo& info) {
  const auto filter = static_cast<PictureFilter>(info.filter);
  const std::uint32_t side = info.tile_side;
  const TileGrid grid = idefics3_grid(picture.width, picture.height, info);
  const Size first = first_size({picture.width, picture.height}, info);
  Picture scaled = resample(picture, first.width, first.height, filter);
  if (info.splits) {
    const Size second = second_size(first, info);
    scaled = resample(scaled, second.width, second.height, filter);
  }
  PictureTiles tiles{.count = grid.num_tiles(), .side = side, .rgb = {}};
  tiles.rgb.reserve(std::size_t{3} * side * side * tiles.count);
  for (std::uint32_t row = 0; row < grid.rows; ++row)
    for (std::uint32_t column = 0; column < grid.columns; ++column) add_tile(scaled, column * side, row * side, side, tiles.rgb);
  add_tile(resample(scaled, side, side, filter), 0, 0, side, tiles.rgb);
  return tiles;
}

std::string idefics3_prompt(TileGrid grid, std::uint32_t tile_tokens) {
  constexpr std::string_view kAround = "<fake_token_around_image>";
  std::string images;
  for (std::uint32_t i = 0; i < tile_tokens; ++i) images += kIdefics3Mark;
  std::string text;
  for (std::uint32_t row = 1; row <= grid.rows; ++row) {
    for (std::uint32_t column = 1; column <= grid.columns; ++column)
      text += fmt::format("{}<row_{}_col_{}>{}", kAround, row, column, images);
    text += '\n';
  }
  return fmt::format("{}{}{}<global-img>{}{}", text, grid.rows > 0 ? "\n" : "", kAround, images, kAround);
}

constexpr PictureProcessor kIdefics3{"idefics3", kIdefics3Mark, idefics3_shape, idefics3_tiles, idefics3_text};

}  // namespace quire
