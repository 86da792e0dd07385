// Reads LLaVA's image processor. For CLIP, it scales an image until the shorter side has the encoder's size, and crops the middle. For
// SigLIP, it scales the image to a square. Called once per model, when its headers are read.
#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>

#include "format/quote.h"
#include "runtime/model/weights/image_fields.h"

namespace quire {
namespace {

// A size in the config: {"shortest_edge": 336}, {"height": 336, "width": 336}, or the number 336. A number is the side of a square if
// `number_is_square` is set, else the shortest edge.
struct ImageSize {
  std::uint32_t shortest_edge = 0, height = 0, width = 0;
};

ImageSize read_size(const JsonRef& json, const char* key, ImageSize usual, bool number_is_square, JsonFields& fields) {
  const auto size = json.find(key);
  if (!size) return usual;
  if (size->value().is_number()) {
    const auto side = fields.need<std::uint32_t>(key);
    return number_is_square ? ImageSize{0, side, side} : ImageSize{side, 0, 0};
  }
  JsonFields inside(*size);
  ImageSize read{inside.get_or<std::uint32_t>("shortest_edge", 0), 0, 0};
  if (read.shortest_edge == 0) read = {0, inside.need<std::uint32_t>("height"), inside.need<std::uint32_t>("width")};
  if (const auto& error = inside.error()) fields.refuse(*error);
  return read;
}

// Returns whether the folder has a CLIP processor; both kinds of processor have several names.
bool is_clip_processor(JsonFields& fields, const JsonRef& json, bool usual) {
  const auto type = fields.get_or<std::string>("image_processor_type", fields.get_or<std::string>("feature_extractor_type", ""));
  if (type.empty()) return usual;
  for (const char* name :
       {"CLIPImageProcessor", "CLIPImageProcessorFast", "CLIPFeatureExtractor", "LlavaImageProcessor", "LlavaImageProcessorFast"})
    if (type == name) return true;
  if (type != "SiglipImageProcessor" && type != "SiglipImageProcessorFast")
    fields.refuse(refuse_image_key(json, "image_processor_type", fmt::format("{} is not implemented", in_quotes(type))).error());
  return false;
}

// Sets shortest_edge, and checks that the sizes agree with tile_side.
Result<void> read_sizes(const JsonRef& json, bool is_clip, JsonFields& fields, ImageInfo& info) {
  const ImageSize usual = is_clip ? ImageSize{224, 0, 0} : ImageSize{0, 224, 224};
  const ImageSize size = read_size(json, "size", usual, !is_clip, fields);
  const bool crops = is_clip && fields.get_or<bool>("do_center_crop", true);
  const ImageSize crop = crops ? read_size(json, "crop_size", {0, 224, 224}, true, fields) : ImageSize{};
  if (const auto& error = fields.error()) return std::unexpected(*error);
  const std::uint32_t side = info.tile_side;
  const auto takes = fmt::format("the encoder needs images of {} pixels per side", side);
  if (crops && (crop.height != side || crop.width != side))
    return refuse_image_key(json, "crop_size", fmt::format("is {} x {}, but {}", crop.width, crop.height, takes));
  if (size.shortest_edge == 0) {
    if (size.height == side && size.width == side) return {};
    return refuse_image_key(json, "size", fmt::format("is {} x {}, but {}", size.width, size.height, takes));
  }
  if (!crops) return refuse_image_key(json, "do_center_crop", fmt::format("is off, but {}", takes));
  if (size.shortest_edge < side || size.shortest_edge > kMaxImageEdge)
    return refuse_image_key(json, "size", fmt::format("is {}, but {}", size.shortest_edge, takes));
  info.shortest_edge = size.shortest_edge;
  return {};
}

// Checks that the values of processor_config.json agree with the encoder. Missing values are the encoder's.
Result<void> check_processor(const JsonRef& json, const VisionConfig& vision) {
  JsonFields fields(json);
  const auto patch = fields.get_optional<std::uint32_t>("patch_size"),
             added = fields.get_optional<std::uint32_t>("num_additional_image_tokens");
  const auto strategy = fields.get_or<std::string>("vision_feature_select_strategy", "");
  const auto mark = fields.get_or<std::string>("image_token", "<image>");
  if (const auto& error = fields.error()) return std::unexpected(*error);
  if (patch && *patch != vision.patch_size)
    return refuse_image_key(json, "patch_size", fmt::format("is {}, but the encoder has {}", *patch, vision.patch_size));
  const std::uint64_t gives = vision.num_embeds(), plain = std::uint64_t{vision.num_patches()} - (strategy == "default" ? 1 : 0);
  if (added && plain + *added != gives)
    return refuse_image_key(json, "num_additional_image_tokens",
                            fmt::format("is {}, which gives {} tokens per image, but the encoder gives {}", *added, plain + *added, gives));
  if (mark != "<image>") return refuse_image_key(json, "image_token", fmt::format("{} is not implemented", in_quotes(mark)));
  return {};
}

}  // namespace

Result<ImageInfo> read_llava_info(const ImageProcessorFiles& files, const VisionConfig& vision) {
  const JsonRef& json = files.image;
  JsonFields fields(json);
  const bool is_clip = is_clip_processor(fields, json, vision.class_token);
  ImageInfo info{.processor = "llava",
                 .tile_side = vision.image_size,
                 .splits = false,
                 .filter = 3,
                 .mean = {0.5F, 0.5F, 0.5F},
                 .deviation = {0.5F, 0.5F, 0.5F}};
  if (is_clip) {
    info.mean = {0.48145466F, 0.4578275F, 0.40821073F};
    info.deviation = {0.26862954F, 0.26130258F, 0.27577711F};
  }
  read_pixel_fields(json, fields, info);
  if (fields.get_or<bool>("do_pad", false)) fields.refuse(refuse_image_key(json, "do_pad", "is on, which is not implemented").error());
  if (auto read = read_sizes(json, is_clip, fields, info); !read) return std::unexpected(std::move(read.error()));
  if (files.whole)
    if (auto checked = check_processor(*files.whole, vision); !checked) return std::unexpected(std::move(checked.error()));
  info.max_tiles = 1;
  info.tile_tokens = vision.num_embeds();
  info.token = vision.token;
  return info;
}

}  // namespace quire
