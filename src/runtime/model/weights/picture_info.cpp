// Read once per model, when its headers are. What is missing has the default of Idefics3ImageProcessor; a switch that would leave out what
// is done here is refused.
#include "runtime/model/weights/picture_info.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "format/json.h"
#include "runtime/model/config/config_fields.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kMostEdge = 4096;  // as the processor cuts it

std::array<float, 3> read_colours(const JsonRef& json, const char* key, JsonFields& fields) {
  std::array<float, 3> colours = {0.5F, 0.5F, 0.5F};
  const auto list = json.find(key);
  if (!list) return colours;
  const auto elements = list->elements();
  if (!elements || elements->size() != colours.size()) {
    fields.refuse({ErrorCode::corrupt, fmt::format("preprocessor_config.json: {}", key), "is no list of three numbers",
                   "use the file that belongs to the model"});
    return colours;
  }
  for (std::size_t i = 0; i < colours.size(); ++i) {
    const auto number = (*elements)[i].as<float>();
    if (!number) fields.refuse(number.error());
    colours[i] = number.value_or(0.5F);
  }
  return colours;
}

std::uint32_t longest_edge(const JsonRef& json, const char* key, std::uint32_t usual, JsonFields& fields) {
  const auto size = json.find(key);
  if (!size) return usual;
  JsonFields inside(*size);
  const auto edge = inside.need<std::uint32_t>("longest_edge");
  if (const auto& error = inside.error()) fields.refuse(*error);
  return edge;
}

Result<PictureInfo> read_idefics3_info(const JsonRef& json, const VisionConfig& vision) {
  JsonFields fields(json);
  PictureInfo info{
      .processor = "idefics3", .mean = read_colours(json, "image_mean", fields), .deviation = read_colours(json, "image_std", fields)};
  for (const char* step : {"do_resize", "do_rescale", "do_normalize", "do_convert_rgb"})
    if (!fields.get_or<bool>(step, true))
      fields.refuse({ErrorCode::unsupported, fmt::format("preprocessor_config.json: {}", step), "is off, which is not implemented",
                     "use a model whose pictures are prepared as usual"});
  info.splits = fields.get_or<bool>("do_image_splitting", true);
  info.filter = fields.get_or<std::uint32_t>("resample", 1);
  info.rescale = fields.get_or<double>("rescale_factor", 1.0 / 255.0);
  info.longest_edge = longest_edge(json, "size", 4 * 364, fields);
  info.tile_side = longest_edge(json, "max_image_size", 364, fields);
  if (const auto& error = fields.error()) return std::unexpected(*error);
  const auto wrong = [](const char* key, std::string problem) {
    return fail(ErrorCode::unsupported, fmt::format("preprocessor_config.json: {}", key), std::move(problem),
                "use the file that belongs to the model");
  };
  if (info.filter < 1 || info.filter > 5) return wrong("resample", fmt::format("{} is not implemented", info.filter));
  if (info.longest_edge == 0 || info.longest_edge > kMostEdge * 4) return wrong("size", fmt::format("is {}", info.longest_edge));
  if (info.tile_side != vision.image_size)
    return wrong("max_image_size", fmt::format("is {}, and the encoder takes pictures of {}", info.tile_side, vision.image_size));
  if (std::ranges::any_of(info.deviation, [](float value) { return !(std::abs(value) > 0.0F); })) return wrong("image_std", "holds a 0");
  const std::uint32_t side = (std::min(info.longest_edge, kMostEdge) + info.tile_side - 1) / info.tile_side;
  info.max_tiles = info.splits && side > 1 ? side * side + 1 : 1;
  info.tile_tokens = vision.num_embeds();
  info.token = vision.token;
  return info;
}

// What a family's folder says of pictures; `json` is of its image processor.
using InfoReader = Result<PictureInfo> (*)(const JsonRef& json, const VisionConfig& vision);

InfoReader reader_of(std::string_view processor) {
  constexpr std::array<std::pair<std::string_view, InfoReader>, 1> kReaders{{{"idefics3", read_idefics3_info}}};
  const auto* const found = std::ranges::find(kReaders, processor, &std::pair<std::string_view, InfoReader>::first);
  QUIRE_CHECK(found != kReaders.end(), "a processor that is known");
  return found->second;
}

}  // namespace

Result<PictureInfo> read_picture_info(const std::string& folder, const VisionConfig& vision) {
  const InfoReader read = reader_of(vision.processor);
  std::error_code ignored;
  const fs::path own = fs::path(folder) / "preprocessor_config.json", joint = fs::path(folder) / "processor_config.json";
  if (fs::exists(own, ignored)) {
    const auto json = read_json_file(own.string());
    return json ? read(JsonRef(*json, "preprocessor_config.json"), vision) : std::unexpected(json.error());
  }
  const auto json = read_json_file(joint.string());
  if (!json) return std::unexpected(json.error());
  const auto processor = JsonRef(*json, "processor_config.json").at("image_processor");
  return processor ? read(*processor, vision) : std::unexpected(processor.error());
}

}  // namespace quire
