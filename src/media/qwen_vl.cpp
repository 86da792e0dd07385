// Each size is computed as in the processor (smart_resize): in double precision, with the operations in the same order. An error of one
// pixel in a size would shift every pixel.
#include "media/qwen_vl.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "media/resample.h"

namespace quire {
namespace {

constexpr double kMaxAspectRatio = 200.0;
constexpr std::string_view kQwenVlPlaceholder = "<|image_pad|>";

struct EmbeddingGrid {
  double across, down;
};

// Returns the grid of squares, across and down, that is nearest to the image's size and within `min_pixels` and `max_pixels`.
EmbeddingGrid embedding_grid_of(double width, double height, const ImageInfo& info) {
  const double side = info.embed_side;
  // Rounds halves to even, as Python's round() does.
  const EmbeddingGrid near{std::nearbyint(width / side), std::nearbyint(height / side)};
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

Result<ImageShape> shape_of(std::uint32_t width, std::uint32_t height, const ImageInfo& info) {
  QUIRE_CHECK(width > 0 && height > 0 && info.embed_side > 0, "the image and the embedding have pixels");
  const double ratio = static_cast<double>(std::max(width, height)) / std::min(width, height);
  if (ratio > kMaxAspectRatio)
    return fail(ErrorCode::invalid_argument, "", fmt::format("is an image of {} x {} pixels", width, height),
                fmt::format("send an image whose longer side is at most {} times the shorter side", kMaxAspectRatio));
  const EmbeddingGrid grid = embedding_grid_of(width, height, info);
  if (grid.across * grid.down > info.tile_tokens || grid.across * grid.down == 0.0)
    return fail(ErrorCode::invalid_argument, "",
                fmt::format("is an image of {} x {} pixels, which the model does not support", width, height),
                "send an image with another aspect ratio");
  ImageShape shape;
  shape.tile_width = static_cast<std::uint32_t>(grid.across) * info.embed_side;
  shape.tile_height = static_cast<std::uint32_t>(grid.down) * info.embed_side;
  shape.tile_tokens = info.tokens_of(shape.tile_width, shape.tile_height);
  return shape;
}

ImageTiles tiles_of(const RgbImage& image, const ImageInfo& info) {
  const auto shape = shape_of(image.width, image.height, info);
  QUIRE_CHECK(shape.has_value(), "the image size has been checked");
  RgbImage scaled = resample(image, shape->tile_width, shape->tile_height, static_cast<ResampleFilter>(info.filter));
  return {.count = 1, .side = scaled.width, .rgb = std::move(scaled.rgb), .rows = scaled.height};
}

std::string text_of(const ImageShape& shape, const ImageInfo& /*info*/) {
  std::string text;
  text.reserve(shape.num_tokens() * kQwenVlPlaceholder.size());
  for (std::uint64_t i = 0; i < shape.num_tokens(); ++i) text += kQwenVlPlaceholder;
  return text;
}

}  // namespace

const ImageProcessor kQwenVlProcessor{
    .name = "qwen2_vl", .image_placeholder = kQwenVlPlaceholder, .shape = shape_of, .tiles = tiles_of, .text = text_of};

}  // namespace quire
