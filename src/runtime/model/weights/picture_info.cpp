// Read once per model, when its headers are. What is missing has the default of the family's processor; a switch that would leave out what
// is done here is refused.
#include "runtime/model/weights/picture_info.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "format/json.h"
#include "runtime/model/config/config_fields.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kMostEdge = 4096;  // as the processor cuts it

std::array<float, 3> read_colours(const JsonRef& json, const char* key, JsonFields& fields,
                                  const std::array<float, 3>& usual = {0.5F, 0.5F, 0.5F}) {
  std::array<float, 3> colours = usual;
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

Error unserved(const char* key, std::string problem) {
  return {ErrorCode::unsupported, fmt::format("preprocessor_config.json: {}", key), std::move(problem),
          "use the file that belongs to the model"};
}

void refuse_left_out(JsonFields& fields) {
  for (const char* step : {"do_resize", "do_rescale", "do_normalize", "do_convert_rgb"})
    if (!fields.get_or<bool>(step, true))
      fields.refuse({ErrorCode::unsupported, fmt::format("preprocessor_config.json: {}", step), "is off, which is not implemented",
                     "use a model whose pictures are prepared as usual"});
}

std::optional<Error> check_colours(const PictureInfo& info) {
  if (info.filter < 1 || info.filter > 5) return unserved("resample", fmt::format("{} is not implemented", info.filter));
  const bool holds_zero = std::ranges::any_of(info.deviation, [](float value) { return !(std::abs(value) > 0.0F); });
  return holds_zero ? std::optional(unserved("image_std", "holds a 0")) : std::nullopt;
}

Result<PictureInfo> read_idefics3_info(const JsonRef& json, const VisionConfig& vision) {
  JsonFields fields(json);
  PictureInfo info{
      .processor = "idefics3", .mean = read_colours(json, "image_mean", fields), .deviation = read_colours(json, "image_std", fields)};
  refuse_left_out(fields);
  info.splits = fields.get_or<bool>("do_image_splitting", true);
  info.filter = fields.get_or<std::uint32_t>("resample", 1);
  info.rescale = fields.get_or<double>("rescale_factor", 1.0 / 255.0);
  info.longest_edge = longest_edge(json, "size", 4 * 364, fields);
  info.tile_side = longest_edge(json, "max_image_size", 364, fields);
  if (const auto& error = fields.error()) return std::unexpected(*error);
  const auto wrong = [](const char* key, std::string problem) { return std::unexpected(unserved(key, std::move(problem))); };
  if (info.longest_edge == 0 || info.longest_edge > kMostEdge * 4) return wrong("size", fmt::format("is {}", info.longest_edge));
  if (info.tile_side != vision.image_size)
    return wrong("max_image_size", fmt::format("is {}, and the encoder takes pictures of {}", info.tile_side, vision.image_size));
  if (auto error = check_colours(info)) return std::unexpected(std::move(*error));
  const std::uint32_t side = (std::min(info.longest_edge, kMostEdge) + info.tile_side - 1) / info.tile_side;
  info.max_tiles = info.splits && side > 1 ? side * side + 1 : 1;
  info.tile_tokens = vision.num_embeds();
  info.token = vision.token;
  return info;
}

// Embeddings of the largest picture: of as many pixels as there may be, or as there must be at least, up to whole squares; or of one that
// is as long as pictures may be and one square high.
std::uint32_t most_squares(const PictureInfo& info) {
  constexpr double kMostRatio = 200.0;
  const auto least = static_cast<double>(info.min_pixels), most = static_cast<double>(info.max_pixels);
  const double side = info.embed_side;
  return static_cast<std::uint32_t>(
      std::max({most / (side * side), least / (side * side) + std::sqrt((kMostRatio + 2.0) * least) / side + 2.0,
                std::sqrt(kMostRatio * most) / side + 1.0}));
}

// The largest and the smallest picture are said by two keys, or in `size`.
void read_pixels(const JsonRef& json, JsonFields& fields, PictureInfo& info) {
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

Result<PictureInfo> read_qwen_info(const JsonRef& json, const VisionConfig& vision) {
  constexpr std::uint64_t kMostPixels = std::uint64_t{1} << 27U;
  JsonFields fields(json);
  PictureInfo info{.processor = "qwen2_vl",
                   .splits = false,
                   .max_tiles = 1,
                   .token = vision.token,
                   .mean = read_colours(json, "image_mean", fields, {0.48145466F, 0.4578275F, 0.40821073F}),
                   .deviation = read_colours(json, "image_std", fields, {0.26862954F, 0.26130258F, 0.27577711F}),
                   .embed_side = vision.patch_size * vision.shuffle,
                   .counts_rows = vision.counts_rows};
  refuse_left_out(fields);
  info.filter = fields.get_or<std::uint32_t>("resample", 3);
  info.rescale = fields.get_or<double>("rescale_factor", 1.0 / 255.0);
  read_pixels(json, fields, info);
  for (const auto& [key, usual, wanted] :
       {std::tuple("patch_size", 14U, vision.patch_size), {"merge_size", 2U, vision.shuffle}, {"temporal_patch_size", 2U, vision.frames}})
    if (const auto given = fields.get_or<std::uint32_t>(key, usual); given != wanted)
      fields.refuse(unserved(key, fmt::format("is {}, and the encoder's is {}", given, wanted)));
  if (const auto& error = fields.error()) return std::unexpected(*error);
  const std::uint64_t square = std::uint64_t{info.embed_side} * info.embed_side;
  if (info.max_pixels < square || info.max_pixels > kMostPixels)
    return std::unexpected(unserved("max_pixels", fmt::format("is {}", info.max_pixels)));
  if (info.min_pixels > info.max_pixels) return std::unexpected(unserved("min_pixels", "is more than max_pixels"));
  if (auto error = check_colours(info)) return std::unexpected(std::move(*error));
  info.tile_tokens = most_squares(info);
  return info;
}

// What a family's folder says of pictures; `json` is of its image processor.
using InfoReader = Result<PictureInfo> (*)(const JsonRef& json, const VisionConfig& vision);

InfoReader reader_of(std::string_view processor) {
  constexpr std::array<std::pair<std::string_view, InfoReader>, 2> kReaders{
      {{"idefics3", read_idefics3_info}, {"qwen2_vl", read_qwen_info}}};
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
