// What differs from layer to layer: which have a window, which do not rotate. Called while a config is read, from either kind of file.
// Patterns are those of the model classes of transformers and of llama.cpp's converter.
#include "runtime/model/config/config_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "format/quote.h"

namespace quire {
namespace {

// By the architecture, where no list tells: Gemma 2 and gpt-oss take turns, Gemma 3 has five layers with a window to one without, OLMo 3
// three, others with windows have them everywhere.
std::uint32_t usual_period(const ModelConfig& config) {
  if (config.architecture == "gpt-oss" || config.architecture == "gpt_oss") return 2;
  for (const char* name : {"olmo2", "olmo3", "exaone4"})  // olmo2: in files of llama.cpp
    if (config.architecture == name) return 4;
  return config.architecture == "gemma2" ? 2 : config.architecture == "gemma3" ? 6 : 0;
}

// All layers but each period-th (0: all).
std::vector<bool> periodic_layers(const ModelConfig& config, std::uint32_t period) {
  std::vector<bool> windowed(std::min(config.num_layers, kMostLayers), true);
  for (std::uint32_t layer = 0; period > 0 && layer < windowed.size(); ++layer) windowed[layer] = (layer + 1) % period != 0;
  return windowed;
}

void set_windows(const std::vector<bool>& windowed, std::uint32_t window, ModelConfig& config) {
  if (std::ranges::find(windowed, true) == windowed.end()) return;
  for (const bool has_window : windowed) config.sliding_windows.push_back(has_window ? window : 0);
}

// As the classes of transformers fill layer_types in.
std::vector<bool> usual_layers(JsonFields& fields, const ModelConfig& config) {
  std::uint32_t period = usual_period(config);
  if (config.architecture == "gemma3") period = fields.get_or<std::uint32_t>("sliding_window_pattern", period);
  std::vector<bool> windowed = periodic_layers(config, period);
  const std::string_view name = config.architecture;
  const bool sees = name == "qwen2_vl" || name == "qwen2_5_vl";
  const std::uint32_t usual = name == "qwen2" || name == "qwen3" ? 28 : name == "dots1" ? 62 : sees ? 80 : 0;
  const std::uint32_t first = usual > 0 ? fields.get_or<std::uint32_t>("max_window_layers", usual) : 0;
  const bool only_still = config.architecture == "smollm3";
  for (std::uint32_t layer = 0; layer < windowed.size(); ++layer)
    if (layer < first || (only_still && config.layer_rotates(layer))) windowed[layer] = false;
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
                     "use a model whose layers all attend to tokens"});
    windowed.push_back(type && *type == "sliding_attention");
  }
  return windowed;
}

// A GGUF file may say the period, or for each layer whether it has a window.
std::vector<bool> layers_of_key(const GgufFile& file, ConfigFields<GgufFile>& fields, const ModelConfig& config) {
  constexpr std::string_view kKey = "attention.sliding_window_pattern";
  const std::string key = fields.field(kKey);
  const GgufValue* value = file.find(key);
  if (value == nullptr || value->type != GgufValueType::array)
    return periodic_layers(config, fields.get_or<std::uint32_t>(kKey, usual_period(config)));
  auto windowed = file.get_array<bool>(key);
  if (!windowed) {
    fields.refuse(std::move(windowed.error()));
    return {};
  }
  if (windowed->size() == config.num_layers) return std::move(*windowed);
  fields.refuse({ErrorCode::corrupt, key, fmt::format("{} entries for {} layers", windowed->size(), config.num_layers),
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
  fields.refuse({ErrorCode::corrupt, list->path(), fmt::format("{} entries for {} layers", elements->size(), config.num_layers),
                 "use the config that belongs to the weights"});
  return {};
}

void read_windows(const GgufFile& file, ConfigFields<GgufFile>& fields, ModelConfig& config) {
  const std::uint32_t usual = config.architecture == "gemma2" ? 4096 : 0;
  if (const auto window = fields.get_or<std::uint32_t>("attention.sliding_window", usual); window > 0)
    set_windows(layers_of_key(file, fields, config), window, config);
}

void set_still_layers(ModelConfig& config) {
  for (const std::uint32_t window : config.sliding_windows) config.still_layers.push_back(window == 0);
}

void read_windows(const JsonRef& json, JsonFields& fields, ModelConfig& config) {
  const std::vector<JsonRef> types = layer_list(json, "layer_types", fields, config);
  const std::vector<bool> listed = listed_layers(types, fields);
  const bool is_gemma = config.architecture.starts_with("gemma");
  const bool is_gpt_oss = config.architecture == "gpt_oss";
  constexpr std::array kAlways{"gemma2", "gemma3", "gpt_oss", "mistral", "mixtral", "phi3", "olmo3", "dots1", "exaone4"};
  const bool always = std::ranges::find(kAlways, config.architecture) != kAlways.end();
  if (!always && !fields.get_or<bool>("use_sliding_window", false)) return;
  std::optional<std::uint32_t> window = fields.get_optional<std::uint32_t>("sliding_window");
  if ((is_gemma || config.architecture == "olmo3" || config.architecture == "dots1") && !window) window = 4096;
  if (is_gpt_oss && !window) window = 128;
  if (!window) return;
  if (*window == 0) {
    fields.refuse({ErrorCode::corrupt, "config.json: sliding_window", "is 0, and a token attends at least to itself",
                   "use the config that belongs to the weights"});
    return;
  }
  set_windows(listed.empty() ? usual_layers(fields, config) : listed, *window, config);
}

}  // namespace quire
