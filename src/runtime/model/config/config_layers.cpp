// Reads settings that differ between layers: which layers have a sliding window, and which layers do not rotate. Called while a config is
// read, for both file formats. Patterns follow transformers' model classes and llama.cpp's converter.
#include "runtime/model/config/config_layers.h"

#include <fmt/format.h>

#include <algorithm>

#include "format/quote.h"

namespace quire {
namespace {

// Returns a list that is false for every period-th layer and true for all others; period 0: true for all layers.
std::vector<bool> periodic_layers(const ModelConfig& config, std::uint32_t period) {
  std::vector<bool> windowed(std::min(config.num_layers, kMaxLayers), true);
  for (std::uint32_t layer = 0; period > 0 && layer < windowed.size(); ++layer) windowed[layer] = (layer + 1) % period != 0;
  return windowed;
}

void set_windows(const std::vector<bool>& windowed, std::uint32_t window, ModelConfig& config) {
  if (std::ranges::find(windowed, true) == windowed.end()) return;
  for (const bool has_window : windowed) config.sliding_windows.push_back(has_window ? window : 0);
}

// Returns which layers have a window if layer_types is missing, as transformers' classes do.
std::vector<bool> default_layers(const ModelFamily& family, JsonFields& fields, const ModelConfig& config) {
  const WindowKeys& keys = family.hf.windows;
  const std::uint32_t period =
      keys.has_period ? fields.get_or<std::uint32_t>("sliding_window_pattern", family.window_period) : family.window_period;
  std::vector<bool> windowed = periodic_layers(config, period);
  const std::uint32_t first = keys.first > 0 ? fields.get_or<std::uint32_t>("max_window_layers", keys.first) : 0;
  for (std::uint32_t layer = 0; layer < windowed.size(); ++layer)
    if (layer < first || (family.nope_interval > 0 && config.layer_rotates(layer))) windowed[layer] = false;
  return windowed;
}

std::vector<bool> listed_layers(const std::vector<JsonRef>& types, JsonFields& fields) {
  std::vector<bool> windowed;
  for (const JsonRef& entry : types) {
    const auto type = entry.as<std::string_view>();
    if (!type)
      fields.refuse(type.error());
    else if (*type != "full_attention" && *type != "sliding_attention")
      fields.refuse({ErrorCode::unsupported, entry.path(), fmt::format("{} is not implemented", in_quotes(*type)),
                     "use a model with attention in all layers"});
    windowed.push_back(type && *type == "sliding_attention");
  }
  return windowed;
}

// Returns which layers have a window. A GGUF file stores either the period, or one value per layer.
std::vector<bool> layers_of_key(const ModelFamily& family, const GgufFile& file, ConfigFields<GgufFile>& fields,
                                const ModelConfig& config) {
  constexpr std::string_view kKey = "attention.sliding_window_pattern";
  const std::string key = fields.field(kKey);
  const GgufValue* value = file.find(key);
  if (value == nullptr || value->type != GgufValueType::array)
    return periodic_layers(config, fields.get_or<std::uint32_t>(kKey, family.window_period));
  auto windowed = file.get_array<bool>(key);
  if (!windowed) {
    fields.refuse(std::move(windowed.error()));
    return {};
  }
  if (windowed->size() == config.num_layers) return std::move(*windowed);
  fields.refuse({ErrorCode::corrupt, key, fmt::format("has {} entries, but the model has {} layers", windowed->size(), config.num_layers),
                 "download or convert the file again"});
  return {};
}

}  // namespace

std::vector<JsonRef> layer_list(const JsonRef& json, std::string_view key, JsonFields& fields, const ModelConfig& config) {
  const auto list = json.find(key);
  if (!list) return {};
  auto elements = list->elements();
  if (!elements) {
    fields.refuse(std::move(elements.error()));
    return {};
  }
  if (elements->size() == config.num_layers) return std::move(*elements);
  fields.refuse({ErrorCode::corrupt, list->path(),
                 fmt::format("has {} entries, but the model has {} layers", elements->size(), config.num_layers),
                 "use the config that belongs to the weights"});
  return {};
}

void read_windows(const ModelFamily& family, const GgufFile& file, ConfigFields<GgufFile>& fields, ModelConfig& config) {
  if (const auto window = fields.get_or<std::uint32_t>("attention.sliding_window", family.gguf.usual_window); window > 0)
    set_windows(layers_of_key(family, file, fields, config), window, config);
}

void set_nope_layers(ModelConfig& config) {
  for (const std::uint32_t window : config.sliding_windows) config.nope_layers.push_back(window == 0);
}

void read_windows(const ModelFamily& family, const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  const WindowKeys& keys = family.hf.windows;
  const std::vector<JsonRef> types = layer_list(json, "layer_types", fields, config);
  const std::vector<bool> listed = listed_layers(types, fields);
  if (!keys.always && !fields.get_or<bool>("use_sliding_window", false)) return;
  // null means that no layer has a window. Classes with a fixed pattern do not accept null.
  const bool has_usual = keys.usual > 0 && !(keys.may_be_null && fields.is_null("sliding_window"));
  const auto window =
      has_usual ? fields.get_or<std::uint32_t>("sliding_window", keys.usual) : fields.get_optional<std::uint32_t>("sliding_window");
  if (!window) return;
  if (*window == 0) {
    fields.refuse(
        {ErrorCode::corrupt, "config.json: sliding_window", "is 0, but must be at least 1", "use the config that belongs to the weights"});
    return;
  }
  set_windows(listed.empty() ? default_layers(family, fields, config) : listed, *window, config);
}

}  // namespace quire
