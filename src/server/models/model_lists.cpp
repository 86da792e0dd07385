#include "server/models/model_lists.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <optional>
#include <string_view>

#include "base/json_writer.h"
#include "server/models/model_names.h"

namespace quire {

namespace {

std::string card_of(const ModelPool& pool, std::size_t model, const std::string& id, std::int64_t started_s) {
  const ModelEntry& entry = pool.options().entries[model];
  const ModelStatus status = pool.status(model);
  std::vector<std::string_view> inputs = {entry.facts.supports_audio ? "audio" : "text"};
  if (entry.facts.supports_images) inputs.emplace_back("image");
  return json_object([&](JsonWriter& json) {
    json.field("id", id).field("object", "model").field("created", started_s).field("owned_by", "quire").field("root", entry.name);
    json.field("parent", id == entry.name ? std::nullopt : std::optional(entry.name));
    json.field("max_model_len", entry.facts.max_model_len > 0 ? std::optional(entry.facts.max_model_len) : std::nullopt);
    json.field("input_modalities", inputs).field("type", "model").field("display_name", id);
    json.field("created_at", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(started_s))));
    json.field("aliases", entry.aliases).begin_object("status").field("value", name_of(status.state)).end_object();
  });
}

}  // namespace

std::string models_json(const ModelPool& pool, std::int64_t started_s) {
  const auto& entries = pool.options().entries;
  return json_object([&](JsonWriter& json) {
    json.field("object", "list").begin_array("data");
    for (std::size_t i = 0; i < entries.size(); ++i)
      for (const std::string& name : listed_names(entries[i])) json.raw(card_of(pool, i, name, started_s));
    json.end_array().field("has_more", false).field("first_id", entries.front().name);
    json.field("last_id", listed_names(entries.back()).back());
  });
}

std::string model_json(const ModelPool& pool, std::size_t model, const std::string& id, std::int64_t started_s) {
  return card_of(pool, model, id, started_s);
}

std::string running_json(const ModelPool& pool) {
  const auto& entries = pool.options().entries;
  return json_object([&](JsonWriter& json) {
    json.begin_array("running");
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const ModelState state = pool.status(i).state;
      if (state == ModelState::stopped) continue;
      const char* const word = state == ModelState::loading ? "starting" : state == ModelState::ready ? "ready" : "stopping";
      json.begin_object().field("model", entries[i].name).field("state", word).end_object();
    }
    json.end_array();
  });
}

std::vector<OllamaEntry> ollama_entries(const ModelPool& pool, bool only_loaded, std::int64_t started_s) {
  std::vector<OllamaEntry> out;
  const auto& entries = pool.options().entries;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const ModelEntry& entry = entries[i];
    const ModelStatus status = pool.status(i);
    if (only_loaded && status.state != ModelState::ready) continue;
    for (const std::string& name : listed_names(entry))
      out.push_back({.name = name,
                     .digest = entry.facts.details.digest,
                     .parent = name == entry.name ? "" : entry.name,
                     .details = entry.facts.details,
                     .bytes = entry.facts.weight_bytes,
                     .modified_s = started_s,
                     .expires_s = status.expires_s,
                     .context_length = entry.facts.max_model_len});
  }
  return out;
}

}  // namespace quire
