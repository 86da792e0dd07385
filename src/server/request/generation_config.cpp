// Reads sampling defaults from the model's generation_config.json, from the keys of its GGUF file, or from the operator's options. Called
// once, before the server starts. Unknown names in the model's files are no error, because the files are not written for quire. A value
// that is invalid in a request is an error.
#include "quire/text/generation_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <limits>
#include <utility>

#include "format/gguf.h"
#include "quire/base/sampling.h"
#include "server/request/object_reader.h"

namespace quire {
namespace {

namespace json = boost::json;

constexpr const char* kFile = "generation_config.json";
constexpr std::size_t kMaxFileBytes = 1 << 20;
constexpr std::int64_t kMaxCount = std::numeric_limits<std::int32_t>::max();
// The default of transformers. A file with this value therefore does not show a choice of the model's author
// (quire/text/generation_config.h).
constexpr std::int64_t kTopKOfTransformers = 50;

// llama.cpp's names of parameters in GGUF files (gguf-py, constants.py). It applies a penalty to the last tokens only, and quire to all.
constexpr std::string_view kGgufPrefix = "general.sampling.";
constexpr std::string_view kGgufTopK = "top_k";
constexpr auto kGgufNumbers = std::to_array<std::pair<std::string_view, std::optional<double> GenerationDefaults::*>>({
    {"temp", &GenerationDefaults::temperature},
    {"top_p", &GenerationDefaults::top_p},
    {"min_p", &GenerationDefaults::min_p},
    {"penalty_repeat", &GenerationDefaults::repetition_penalty},
});

Result<void> check(const GenerationDefaults& defaults) {
  SamplingParams params;
  params.temperature = static_cast<float>(defaults.temperature.value_or(1.0));
  params.top_p = static_cast<float>(defaults.top_p.value_or(1.0));
  params.min_p = static_cast<float>(defaults.min_p.value_or(0.0));
  params.repetition_penalty = static_cast<float>(defaults.repetition_penalty.value_or(1.0));
  return params.validate();
}

// Parses defaults. `is_whole`: the text was written for this server, so an unknown name is an error.
Result<GenerationDefaults> defaults_of(std::string_view text, bool is_whole) {
  auto object = parse_object(text);
  if (!object) return std::unexpected(object.error());
  ObjectReader reader(*object);
  GenerationDefaults defaults;
  for (const auto& [name, value] : {std::pair("temperature", &defaults.temperature), std::pair("top_p", &defaults.top_p),
                                    std::pair("min_p", &defaults.min_p), std::pair("repetition_penalty", &defaults.repetition_penalty)})
    if (reader.find(name) != nullptr) *value = reader.number(name, 0.0);
  if (reader.find("top_k") != nullptr) defaults.top_k = reader.integer("top_k", 0, -1, kMaxCount);
  if (const auto most = reader.integer("max_new_tokens", 1, kMaxCount)) defaults.max_tokens = static_cast<std::uint32_t>(*most);
  if (is_whole || reader.failed())
    if (const auto done = reader.finish(); !done) return std::unexpected(done.error());
  if (const auto valid = check(defaults); !valid) return std::unexpected(valid.error());
  return defaults;
}

// Returns the content of the file, or nullopt if it does not exist.
Result<std::optional<std::string>> text_of(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kFile;
  std::error_code none;
  if (!std::filesystem::exists(path, none)) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.eof() || file.bad() || !std::filesystem::is_regular_file(path, none)) {
    return fail(ErrorCode::invalid_argument, "generation_config", fmt::format("{} cannot be read, or is larger than 1 MiB", path.string()),
                "fix the file, or use --generation-config vllm");
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

std::filesystem::path folder_of(const std::string& model) {
  std::error_code none;
  const std::filesystem::path path(model);
  return std::filesystem::is_directory(path, none) ? path : path.parent_path();
}

Error within(std::string where, Error error) {
  error.field = error.field.empty() ? std::move(where) : std::move(where) + "." + error.field;
  return error;
}

template <class Value>
void override_with(std::optional<Value>& value, const std::optional<Value>& given) {
  if (given) value = given;
}

// Reads one key of a GGUF file into `config`.
Result<void> read_gguf_key(const GgufFile& file, std::string_view key, GenerationConfig& config) {
  const std::string_view name = key.substr(kGgufPrefix.size());
  const auto number = std::ranges::find(kGgufNumbers, name, [](const auto& known) { return known.first; });
  if (number != kGgufNumbers.end()) {
    const auto value = file.get<float>(key);
    if (!value) return std::unexpected(value.error());
    config.defaults.*number->second = *value;
  } else if (name == kGgufTopK) {
    const auto value = file.get<std::int64_t>(key);
    if (!value) return std::unexpected(value.error());
    if (*value != kTopKOfTransformers) config.defaults.top_k = std::clamp<std::int64_t>(*value, 0, kMaxCount);
  } else {
    config.ignored.emplace_back(name);
  }
  return {};
}

// Returns the defaults in a GGUF file, or nullopt if it has none. The engine reports a file that cannot be read when it loads the model.
Result<std::optional<GenerationConfig>> from_gguf(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return std::nullopt;
  const auto file = GgufFile::open(path);
  if (!file) return std::nullopt;
  std::optional<GenerationConfig> config;
  for (const std::string_view key : file->keys()) {
    if (!key.starts_with(kGgufPrefix)) continue;
    if (!config) config = GenerationConfig{.source = fmt::format("{}* of the GGUF file", kGgufPrefix)};
    if (const auto read = read_gguf_key(*file, key, *config); !read) return std::unexpected(read.error());
  }
  if (config)
    if (const auto valid = check(config->defaults); !valid) return std::unexpected(valid.error());
  return config;
}

Result<GenerationConfig> from_folder(const std::filesystem::path& folder, bool is_auto) {
  const auto read = text_of(folder);
  if (!read) return std::unexpected(read.error());
  const std::optional<std::string>& text = *read;
  if (!text) {
    if (is_auto) return GenerationConfig{};
    return fail(ErrorCode::not_found, "generation_config", fmt::format("there is no {} in '{}'", kFile, folder.string()),
                "use a folder that contains one, or auto, or vllm");
  }
  auto defaults = parse_generation_config(*text);
  if (!defaults) return std::unexpected(within("generation_config", std::move(defaults.error())));
  if (!is_auto) defaults->max_limit = defaults->max_tokens;
  return GenerationConfig{.defaults = *defaults, .source = (folder / kFile).string()};
}

Result<GenerationConfig> from_source(const std::string& model, const std::string& source) {
  if (source == "vllm") return GenerationConfig{};
  if (source != "auto") return from_folder(source, false);
  auto config = from_gguf(model);
  if (!config) {
    config.error().remedy = "correct the file, or use --generation-config vllm";
    return std::unexpected(within("generation_config", std::move(config.error())));
  }
  std::optional<GenerationConfig>& found = *config;
  if (found) return *std::move(found);
  return from_folder(folder_of(model), true);
}

}  // namespace

Result<GenerationDefaults> parse_generation_config(std::string_view json) {
  auto defaults = defaults_of(json, false);
  if (defaults && defaults->top_k == kTopKOfTransformers) defaults->top_k.reset();
  return defaults;
}

Result<GenerationConfig> read_generation_config(const std::string& model, const GenerationConfigOptions& options) {
  auto config = from_source(model, options.source);
  if (!config || options.overrides.empty()) return config;
  const auto given = defaults_of(options.overrides, true);
  if (!given) return std::unexpected(within("override_generation_config", given.error()));
  const bool has_source = !describe(config->defaults).empty();
  config->source = (has_source ? config->source + " and " : "") + "--override-generation-config";
  GenerationDefaults& defaults = config->defaults;
  override_with(defaults.temperature, given->temperature);
  override_with(defaults.top_p, given->top_p);
  override_with(defaults.min_p, given->min_p);
  override_with(defaults.repetition_penalty, given->repetition_penalty);
  override_with(defaults.top_k, given->top_k);
  override_with(defaults.max_tokens, given->max_tokens);
  override_with(defaults.max_limit, given->max_tokens);
  return config;
}

std::string describe(const GenerationDefaults& defaults) {
  std::string text;
  const auto add = [&text](std::string_view name, const auto& value) {
    if (value) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, *value);
  };
  // SamplingParams has floats. A float from a GGUF file is then shown as 0.95 instead of 0.949999988079071.
  const auto as_float = [](std::optional<double> value) { return value ? std::optional(static_cast<float>(*value)) : std::nullopt; };
  add("temperature", as_float(defaults.temperature));
  add("top_p", as_float(defaults.top_p));
  add("top_k", defaults.top_k);
  add("min_p", as_float(defaults.min_p));
  add("repetition_penalty", as_float(defaults.repetition_penalty));
  add("max_tokens", defaults.max_tokens);
  add("max_tokens limit", defaults.max_limit);
  return text;
}

}  // namespace quire
