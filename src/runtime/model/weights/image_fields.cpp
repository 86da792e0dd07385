#include "runtime/model/weights/image_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace quire {
namespace {

std::string key_path(const JsonRef& json, std::string_view key) {
  return fmt::format("{}{}{}", json.path(), json.path().ends_with(".json") ? ": " : ".", key);
}

void read_colours(const JsonRef& json, const char* key, JsonFields& fields, std::array<float, 3>& colours) {
  const auto list = json.find(key);
  if (!list) return;
  const auto elements = list->elements();
  if (!elements || elements->size() != colours.size()) {
    fields.refuse({ErrorCode::corrupt, key_path(json, key), "is not a list of three numbers", "use the file that belongs to the model"});
    return;
  }
  for (std::size_t i = 0; i < colours.size(); ++i) {
    const auto number = (*elements)[i].as<float>();
    if (!number) fields.refuse(number.error());
    colours[i] = number.value_or(0.5F);
  }
}

}  // namespace

void read_pixel_fields(const JsonRef& json, JsonFields& fields, ImageInfo& info) {
  read_colours(json, "image_mean", fields, info.mean);
  read_colours(json, "image_std", fields, info.deviation);
  for (const char* step : {"do_resize", "do_rescale", "do_normalize", "do_convert_rgb"})
    if (!fields.get_or<bool>(step, true))
      fields.refuse({ErrorCode::unsupported, key_path(json, step), "is off, which is not implemented",
                     "use a model with standard image preprocessing"});
  info.filter = fields.get_or<std::uint32_t>("resample", info.filter);
  info.rescale = fields.get_or<double>("rescale_factor", info.rescale);
  const auto wrong = [&](const char* key, std::string problem) { fields.refuse(refuse_image_key(json, key, std::move(problem)).error()); };
  if (info.filter < 1 || info.filter > 5) wrong("resample", fmt::format("{} is not implemented", info.filter));
  if (std::ranges::any_of(info.deviation, [](float value) { return !(std::abs(value) > 0.0F); })) wrong("image_std", "contains 0 or NaN");
}

std::unexpected<Error> refuse_image_key(const JsonRef& json, std::string_view key, std::string problem) {
  return fail(ErrorCode::unsupported, key_path(json, key), std::move(problem), "use the file that belongs to the model");
}

}  // namespace quire
