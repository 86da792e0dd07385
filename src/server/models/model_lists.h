#pragma once
// Lists of the models and their states, in the formats of the APIs.
#include <cstdint>
#include <string>
#include <vector>

#include "server/api/ollama/ollama_models.h"
#include "server/models/model_pool.h"

namespace quire {

// Return the bodies of GET /v1/models and GET /v1/models/NAME. Each name and alias has a card; patterns stand in the cards' "aliases".
[[nodiscard]] std::string models_json(const ModelPool& pool, std::int64_t started_s);
[[nodiscard]] std::string model_json(const ModelPool& pool, std::size_t model, const std::string& id, std::int64_t started_s);

// Returns the body of GET /running, in the format of llama-swap.
[[nodiscard]] std::string running_json(const ModelPool& pool);

// Returns the models for Ollama's lists; `only_loaded`: those with a process that is ready.
[[nodiscard]] std::vector<OllamaEntry> ollama_entries(const ModelPool& pool, bool only_loaded, std::int64_t started_s);

}  // namespace quire
