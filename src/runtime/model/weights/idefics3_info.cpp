// Reads Idefics3's image processor, which cuts an image into tiles, followed by the whole image as the last tile.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/model/weights/image_fields.h"

namespace quire {
namespace {

constexpr std::uint32_t kMaxEdge = 4096;  // the processor's limit for cutting, in pixels

std::uint32_t longest_edge(const JsonRef& json, const char* key, std::uint32_t usual, JsonFields& fields) {
  const auto size = json.find(key);
  if (!size) return usual;
  JsonFields inside(*size);
  const auto edge = inside.need<std::uint32_t>("longest_edge");
  if (const auto& error = inside.error()) fields.refuse(*error);
  return edge;
}

}  // namespace

Result<ImageInfo> read_idefics3_info(const ImageProcessorFiles& files, const VisionConfig& vision) {
  const JsonRef& json = files.image;
  JsonFields fields(json);
  ImageInfo info{.processor = "idefics3", .mean = {0.5F, 0.5F, 0.5F}, .deviation = {0.5F, 0.5F, 0.5F}};
  read_pixel_fields(json, fields, info);
  info.splits = fields.get_or<bool>("do_image_splitting", true);
  info.longest_edge = longest_edge(json, "size", 4 * 364, fields);
  info.tile_side = longest_edge(json, "max_image_size", 364, fields);
  if (const auto& error = fields.error()) return std::unexpected(*error);
  if (info.longest_edge == 0 || info.longest_edge > kMaxImageEdge)
    return refuse_image_key(json, "size", fmt::format("is {}, which is out of range", info.longest_edge));
  if (info.tile_side != vision.image_size)
    return refuse_image_key(json, "max_image_size",
                            fmt::format("is {}, but the encoder needs images of {} pixels per side", info.tile_side, vision.image_size));
  const std::uint32_t side = (std::min(info.longest_edge, kMaxEdge) + info.tile_side - 1) / info.tile_side;
  info.max_tiles = info.splits && side > 1 ? side * side + 1 : 1;
  info.tile_tokens = vision.num_embeds();
  info.token = vision.token;
  return info;
}

}  // namespace quire
