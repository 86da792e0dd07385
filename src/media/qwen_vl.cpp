// Each number is made as the processor makes it (smart_resize), in double precision and in its order: a size that is off by one would move
// every pixel.
#include "media/qwen_vl.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "media/resample.h"

namespace quire {
namespace {

constexpr double kMostRatio = 200.0;
constexpr std::string_view kMark = "<|image_pad|>";

struct Squares {
  double across, down;
};

// As many as come nearest to the picture's size, or as fit below the most pixels, or as reach the least.
Squares squares_of(double width, double height, const PictureInfo& info) {
  const double side = info.embed_side;
  // Halves go to the even one, as in Python.
  const Squares near{std::nearbyint(width / side), std::nearbyint(height / side)};
  const double pixels = near.across * side * near.down * side;
  const auto most = static_cast<double>(info.max_pixels), least = static_cast<double>(info.min_pixels);
  if (pixels > most) {
    const double beta = std::sqrt(width * height / most);
    return {std::max(1.0, std::floor(width / beta / side)), std::max(1.0, std::floor(height / beta / side))};
  }
  if (pixels < least) {
    const double beta = std::sqrt(least / (width * height));
    return {std::ceil(width * beta / side), std::ceil(height * beta / side)};
  }
  return near;
}

Result<PictureShape> shape_of(std::uint32_t width, std::uint32_t height, const PictureInfo& info) {
  QUIRE_CHECK(width > 0 && height > 0 && info.embed_side > 0, "a picture has pixels");
  const double ratio = static_cast<double>(std::max(width, height)) / std::min(width, height);
  if (ratio > kMostRatio)
    return fail(ErrorCode::invalid_argument, "", fmt::format("is a picture of {} x {} pixels", width, height),
                fmt::format("send one whose sides differ by a factor of {} at most", kMostRatio));
  const Squares squares = squares_of(width, height, info);
  if (squares.across * squares.down > info.tile_tokens || squares.across * squares.down == 0.0)
    return fail(ErrorCode::invalid_argument, "",
                fmt::format("is a picture of {} x {} pixels, which the model does not take", width, height), "send one of another shape");
  PictureShape shape;
  shape.tile_width = static_cast<std::uint32_t>(squares.across) * info.embed_side;
  shape.tile_height = static_cast<std::uint32_t>(squares.down) * info.embed_side;
  shape.tile_tokens = info.tokens_of(shape.tile_width, shape.tile_height);
  return shape;
}

PictureTiles tiles_of(const Picture& picture, const PictureInfo& info) {
  const auto shape = shape_of(picture.width, picture.height, info);
  QUIRE_CHECK(shape.has_value(), "a picture whose head has been looked at");
  Picture scaled = resample(picture, shape->tile_width, shape->tile_height, static_cast<PictureFilter>(info.filter));
  return {.count = 1, .side = scaled.width, .rgb = std::move(scaled.rgb), .rows = scaled.height};
}

std::string text_of(const PictureShape& shape, const PictureInfo& /*info*/) {
  std::string text;
  text.reserve(shape.num_tokens() * kMark.size());
  for (std::uint64_t i = 0; i < shape.num_tokens(); ++i) text += kMark;
  return text;
}

}  // namespace

const PictureProcessor kQwenVl{.name = "qwen2_vl", .mark = kMark, .shape = shape_of, .tiles = tiles_of, .text = text_of};

}  // namespace quire
