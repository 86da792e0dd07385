// Read once per model, when its headers are. What is missing has the default of the family's image processor; a switch that would leave out
// what is done here is refused.
#include "runtime/model/weights/picture_info.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "format/json.h"
#include "runtime/model/weights/picture_fields.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kMostEdge = 4096;  // as the processor cuts it

std::uint32_t longest_edge(const JsonRef& json, const char* key, std::uint32_t usual, JsonFields& fields) {
  const auto size = json.find(key);
  if (!size) return usual;
  JsonFields inside(*size);
  const auto edge = inside.need<std::uint32_t>("longest_edge");
  if (const auto& error = inside.error()) fields.refuse(*error);
  return edge;
}

Result<PictureInfo> read_idefics3_info(const PictureFiles& files, const VisionConfig& vision) {
  const JsonRef& json = files.image;
  JsonFields fields(json);
  PictureInfo info{.processor = "idefics3", .mean = {0.5F, 0.5F, 0.5F}, .deviation = {0.5F, 0.5F, 0.5F}};
  read_pixel_fields(json, fields, info);
  info.splits = fields.get_or<bool>("do_image_splitting", true);
  info.longest_edge = longest_edge(json, "size", 4 * 364, fields);
  info.tile_side = longest_edge(json, "max_image_size", 364, fields);
  if (const auto& error = fields.error()) return std::unexpected(*error);
  if (info.longest_edge == 0 || info.longest_edge > kMostPictureEdge)
    return refuse_picture_key(json, "size", fmt::format("is {}", info.longest_edge));
  if (info.tile_side != vision.image_size)
    return refuse_picture_key(json, "max_image_size",
                              fmt::format("is {}, and the encoder takes pictures of {}", info.tile_side, vision.image_size));
  const std::uint32_t side = (std::min(info.longest_edge, kMostEdge) + info.tile_side - 1) / info.tile_side;
  info.max_tiles = info.splits && side > 1 ? side * side + 1 : 1;
  info.tile_tokens = vision.num_embeds();
  info.token = vision.token;
  return info;
}

// What a family's folder says of pictures.
using InfoReader = Result<PictureInfo> (*)(const PictureFiles& files, const VisionConfig& vision);

InfoReader reader_of(std::string_view processor) {
  constexpr std::array<std::pair<std::string_view, InfoReader>, 3> kReaders{
      {{"idefics3", read_idefics3_info}, {"llava", read_llava_info}, {"qwen2_vl", read_qwen_info}}};
  const auto* const found = std::ranges::find(kReaders, processor, &std::pair<std::string_view, InfoReader>::first);
  QUIRE_CHECK(found != kReaders.end(), "a processor that is known");
  return found->second;
}

// Nothing where there is no such file.
Result<std::optional<boost::json::value>> read_if_there(const fs::path& path) {
  auto json = read_json_file(path.string());
  if (json) return std::optional(*std::move(json));
  if (json.error().code == ErrorCode::not_found) return std::optional<boost::json::value>{};
  return std::unexpected(std::move(json.error()));
}

}  // namespace

Result<PictureInfo> read_picture_info(const std::string& folder, const VisionConfig& vision) {
  constexpr std::string_view kOwn = "preprocessor_config.json", kJoint = "processor_config.json";
  const auto own = read_if_there(fs::path(folder) / kOwn), joint = read_if_there(fs::path(folder) / kJoint);
  for (const auto* file : {&own, &joint})
    if (!*file) return std::unexpected(file->error());
  const auto whole = *joint ? std::optional(JsonRef(**joint, kJoint)) : std::nullopt;
  if (*own) return reader_of(vision.processor)({JsonRef(**own, kOwn), whole}, vision);
  if (!whole) return fail(ErrorCode::not_found, (fs::path(folder) / kOwn).string(), "no such file", "use the whole folder of the model");
  const auto image = whole->at("image_processor");
  return image ? reader_of(vision.processor)({*image, whole}, vision) : std::unexpected(image.error());
}

}  // namespace quire
