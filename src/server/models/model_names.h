#pragma once
// Finds the model that a request names.
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "server/models/model_entry.h"

namespace quire {

// Returns the index of the entry that `requested` means: first an exact name, alias or adapter, then the first pattern in the order of the
// entries. An empty name means the first entry. `is_ollama`: the name may end with ":latest", as in the processes of the models. Errors:
// `not_found` for the field "model", with the known names.
[[nodiscard]] Result<std::size_t> find_entry(std::span<const ModelEntry> entries, std::string_view requested, bool is_ollama = false);

// Returns an error that names two entries with the same name, alias, pattern or adapter, or a name with a control character.
[[nodiscard]] Result<void> check_names(std::span<const ModelEntry> entries);

// Returns the names of an entry that lists show: its name, its exact aliases and its adapters.
[[nodiscard]] std::vector<std::string> listed_names(const ModelEntry& entry);

}  // namespace quire
