// Reads from a model's folder how images are prepared for the model. Called once per model, when its headers are read; each family of image
// processors has a reader in a separate file. Missing values are the defaults of the image processor. A config that switches off a
// processing step is refused.
#include "runtime/model/weights/image_info.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "format/json.h"
#include "runtime/model/weights/image_fields.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// Reads the parameters for the preparation of images from the files of a family's folder.
using InfoReader = Result<ImageInfo> (*)(const ImageProcessorFiles& files, const VisionConfig& vision);

InfoReader reader_of(std::string_view processor) {
  constexpr std::array<std::pair<std::string_view, InfoReader>, 4> kReaders{
      {{"idefics3", read_idefics3_info}, {"llava", read_llava_info}, {"gemma3", read_gemma3_info}, {"qwen2_vl", read_qwen_info}}};
  const auto* const found = std::ranges::find(kReaders, processor, &std::pair<std::string_view, InfoReader>::first);
  QUIRE_CHECK(found != kReaders.end(), "the image processor is known");
  return found->second;
}

// Returns the file's JSON; nullopt if the file does not exist.
Result<std::optional<boost::json::value>> read_if_there(const fs::path& path) {
  auto json = read_json_file(path.string(), kPythonJson);
  if (json) return std::optional(*std::move(json));
  if (json.error().code == ErrorCode::not_found) return std::optional<boost::json::value>{};
  return std::unexpected(std::move(json.error()));
}

}  // namespace

Result<ImageInfo> read_image_info(const std::string& folder, const VisionConfig& vision) {
  constexpr std::string_view kOwn = "preprocessor_config.json", kJoint = "processor_config.json";
  const auto own = read_if_there(fs::path(folder) / kOwn), joint = read_if_there(fs::path(folder) / kJoint);
  for (const auto* file : {&own, &joint})
    if (!*file) return std::unexpected(file->error());
  const std::optional<boost::json::value>&own_json = *own, &joint_json = *joint;
  const auto whole = joint_json.has_value() ? std::optional(JsonRef(*joint_json, kJoint)) : std::nullopt;
  if (own_json.has_value()) return reader_of(vision.processor)({JsonRef(*own_json, kOwn), whole}, vision);
  if (!whole) return fail(ErrorCode::not_found, (fs::path(folder) / kOwn).string(), "no such file", "use the complete folder of the model");
  const auto image = whole->at("image_processor");
  return image ? reader_of(vision.processor)({*image, whole}, vision) : std::unexpected(image.error());
}

}  // namespace quire
