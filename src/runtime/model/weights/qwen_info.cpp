// Reads Qwen2-VL's image processor: images keep their aspect ratio, and are scaled to whole squares of merged patches.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "runtime/model/weights/image_fields.h"

namespace quire {
namespace {

// Returns the maximum number of embeddings of an image, the largest of three cases: an image with the most pixels; an image with the fewest
// pixels, rounded up to whole squares; the longest possible image, one square high.
std::uint32_t max_squares(const ImageInfo& info) {
  constexpr double kMostRatio = 200.0;
  const auto least = static_cast<double>(info.min_pixels), most = static_cast<double>(info.max_pixels);
  const double side = info.embed_side;
  return static_cast<std::uint32_t>(
      std::max({most / (side * side), least / (side * side) + std::sqrt((kMostRatio + 2.0) * least) / side + 2.0,
                std::sqrt(kMostRatio * most) / side + 1.0}));
}

// Reads the largest and smallest number of pixels, from two keys or from `size`.
void read_pixels(const JsonRef& json, JsonFields& fields, ImageInfo& info) {
  info.min_pixels = std::uint64_t{56} * 56;
  info.max_pixels = std::uint64_t{28} * 28 * 1280;
  if (const auto size = json.find("size")) {
    JsonFields inside(*size);
    info.min_pixels = inside.get_or<std::uint64_t>("shortest_edge", info.min_pixels);
    info.max_pixels = inside.get_or<std::uint64_t>("longest_edge", info.max_pixels);
    if (const auto& error = inside.error()) fields.refuse(*error);
  }
  info.min_pixels = fields.get_or<std::uint64_t>("min_pixels", info.min_pixels);
  info.max_pixels = fields.get_or<std::uint64_t>("max_pixels", info.max_pixels);
}

}  // namespace

Result<ImageInfo> read_qwen_info(const ImageProcessorFiles& files, const VisionConfig& vision) {
  constexpr std::uint64_t kMostPixels = std::uint64_t{1} << 27U;
  const JsonRef& json = files.image;
  JsonFields fields(json);
  ImageInfo info{.processor = "qwen2_vl",
                 .splits = false,
                 .filter = 3,
                 .max_tiles = 1,
                 .token = vision.token,
                 .mean = {0.48145466F, 0.4578275F, 0.40821073F},
                 .deviation = {0.26862954F, 0.26130258F, 0.27577711F},
                 .embed_side = vision.patch_size * vision.shuffle,
                 .has_grid_positions = vision.has_grid_positions};
  read_pixel_fields(json, fields, info);
  read_pixels(json, fields, info);
  for (const auto& [key, usual, wanted] :
       {std::tuple("patch_size", 14U, vision.patch_size), {"merge_size", 2U, vision.shuffle}, {"temporal_patch_size", 2U, vision.frames}})
    if (const auto given = fields.get_or<std::uint32_t>(key, usual); given != wanted)
      fields.refuse(refuse_image_key(json, key, fmt::format("is {}, but the encoder has {}", given, wanted)).error());
  if (const auto& error = fields.error()) return std::unexpected(*error);
  const std::uint64_t square = std::uint64_t{info.embed_side} * info.embed_side;
  if (info.max_pixels < square || info.max_pixels > kMostPixels)
    return refuse_image_key(json, "max_pixels", fmt::format("is {}, which is out of range", info.max_pixels));
  if (info.min_pixels > info.max_pixels) return refuse_image_key(json, "min_pixels", "is greater than max_pixels");
  info.tile_tokens = max_squares(info);
  return info;
}

}  // namespace quire
