#pragma once
// The file or the folder of `quire serve --models`.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/config_file.h"
#include "quire/base/error.h"

namespace quire {

// Limits for all models together. nullopt: not set.
struct ModelsLimits {
  std::optional<std::uint32_t> max_loaded, idle_s, wait_s, max_waiting;
  std::optional<std::uint64_t> memory_bytes;
};

struct ListedModel {
  std::string name;   // empty: the name of the file or folder
  std::string model;  // as the argument MODEL of `quire serve`
  std::vector<std::string> aliases;
  std::vector<ConfigEntry> flags;  // of `quire serve`
  std::size_t line = 0;            // from 1; 0: found in a folder
};

struct ModelsList {
  std::vector<ListedModel> models;
  ModelsLimits limits;
};

// Parses the YAML of such a file: limits, and below "models:" one list item per model. Errors begin with the line.
Result<ModelsList> parse_models_file(std::string_view text);

// Returns the models of a folder, sorted by name: GGUF files (the first part of a split model, no image encoders), Hugging Face folders,
// and folders with one GGUF model, whose image encoder is used. Errors: the folder cannot be read or has no model.
Result<ModelsList> list_models_folder(const std::string& folder);

// Reads a file or a folder. Errors name the field "--models".
Result<ModelsList> read_models(const std::string& path);

}  // namespace quire
