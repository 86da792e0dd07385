// Reads Gemma3ImageProcessor, which scales an image to a square. A folder that also crops parts of the image ("pan and scan") is refused.
#include <fmt/format.h>

#include <utility>

#include "runtime/model/weights/image_fields.h"

namespace quire {
namespace {

// Returns an error unless the file's number of image tokens is the number of embeddings of the encoder.
Result<void> check_tokens(const JsonRef& json, const VisionConfig& vision) {
  JsonFields fields(json);
  const auto tokens = fields.get_or<std::uint32_t>("image_seq_length", vision.num_embeds());
  if (const auto& error = fields.error()) return std::unexpected(*error);
  if (tokens != vision.num_embeds())
    return refuse_image_key(json, "image_seq_length", fmt::format("is {}, but the encoder gives {}", tokens, vision.num_embeds()));
  return {};
}

}  // namespace

Result<ImageInfo> read_gemma3_info(const ImageProcessorFiles& files, const VisionConfig& vision) {
  const JsonRef& json = files.image;
  JsonFields fields(json);
  ImageInfo info{.processor = "gemma3",
                 .tile_side = vision.image_size,
                 .splits = false,
                 .filter = 2,
                 .mean = {0.5F, 0.5F, 0.5F},
                 .deviation = {0.5F, 0.5F, 0.5F}};
  read_pixel_fields(json, fields, info);
  if (fields.get_optional<bool>("do_pan_and_scan").value_or(false))
    fields.refuse(refuse_image_key(json, "do_pan_and_scan", "is on, which is not implemented").error());
  std::uint32_t height = 224, width = 224;
  if (const auto size = json.find("size")) {
    JsonFields inside(*size);
    height = inside.need<std::uint32_t>("height");
    width = inside.need<std::uint32_t>("width");
    if (const auto& error = inside.error()) fields.refuse(*error);
  }
  if (const auto& error = fields.error()) return std::unexpected(*error);
  if (height != info.tile_side || width != info.tile_side)
    return refuse_image_key(json, "size",
                            fmt::format("is {} x {}, but the encoder needs images of {} pixels per side", width, height, info.tile_side));
  if (auto checked = check_tokens(json, vision); !checked) return std::unexpected(std::move(checked.error()));
  if (files.whole)
    if (auto checked = check_tokens(*files.whole, vision); !checked) return std::unexpected(std::move(checked.error()));
  info.max_tiles = 1;
  info.tile_tokens = vision.num_embeds();
  info.token = vision.token;
  info.attends_bidirectionally = true;
  return info;
}

}  // namespace quire
