#include "server/api/llama_cpp/props.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "base/json_writer.h"
#include "quire/base/version.h"
#include "server/answers/completion.h"
#include "server/request/served_model.h"

namespace quire {

namespace {

std::uint32_t num_slots(Serving& serving) {
  return serving.engine().engine().options().scheduler.max_num_seqs;
}

// Writes the sampling parameters of a request, or the defaults. `most_tokens` is -1 for as many as fit.
void write_params(JsonWriter& json, const GenerationDefaults& defaults, std::optional<AnswerSource::Progress> progress) {
  // A request without a limit has the largest integer.
  const bool is_limited = progress && progress->max_tokens < static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max());
  const std::int64_t most_tokens = is_limited ? std::int64_t{progress->max_tokens} : -1;
  const double temperature = progress ? static_cast<double>(progress->temperature) : defaults.temperature.value_or(1.0);
  const double top_p = progress ? static_cast<double>(progress->top_p) : defaults.top_p.value_or(1.0);
  json.begin_object("params").field("n_predict", most_tokens).field("max_tokens", most_tokens);
  json.field("temperature", temperature).field("top_p", top_p);
  if (!progress) {
    json.field("top_k", defaults.top_k.value_or(0)).field("min_p", defaults.min_p.value_or(0.0));
    json.field("repeat_penalty", defaults.repetition_penalty.value_or(1.0)).field("repeat_last_n", -1);
    json.field("presence_penalty", 0.0).field("frequency_penalty", 0.0);
  }
  json.end_object();
}

// Writes a slot. `answer` is null for a slot without a request.
void write_slot(JsonWriter& json, std::uint32_t id, Serving& serving, const Serving::AnswerInProgress* answer) {
  const bool is_speculative = serving.engine().engine().options().speculation.num_speculative_tokens > 0;
  json.begin_object().field("id", id).field("id_task", answer == nullptr ? std::int64_t{-1} : std::int64_t{id});
  json.field("n_ctx", serving.model().max_model_len()).field("speculative", is_speculative);
  json.field("is_processing", answer != nullptr);
  if (answer != nullptr) {
    const AnswerSource::TokenCounts counts = answer->completion->num_tokens();
    const auto progress = answer->completion->progress();
    json.field("id_answer", answer->id).field("n_prompt_tokens", counts.prompt).field("n_prompt_tokens_cached", counts.cached);
    write_params(json, serving.options().generation_defaults, progress);
    json.begin_object("next_token").field("has_next_token", true).field("n_decoded", counts.output);
    json.field("n_remain", progress ? std::int64_t{progress->max_tokens} - static_cast<std::int64_t>(counts.output) : -1).end_object();
  }
  json.end_object();
}

}  // namespace

std::string props_body(Serving& serving) {
  const Engine& engine = serving.engine().engine();
  const std::string_view path = engine.options().model;
  const std::string_view trimmed = path.substr(0, path.find_last_not_of('/') + 1);
  return json_object([&](JsonWriter& json) {
    json.begin_object("default_generation_settings").field("n_ctx", serving.model().max_model_len());
    write_params(json, serving.options().generation_defaults, std::nullopt);
    json.end_object().field("total_slots", num_slots(serving)).field("model_alias", serving.model().name());
    json.field("model_path", trimmed.substr(trimmed.find_last_of('/') + 1));
    json.begin_object("modalities")
        .field("vision", engine.model().pictures.any())
        .field("audio", engine.model().has_encoder())
        .end_object();
    json.field("endpoint_slots", true).field("endpoint_props", false).field("endpoint_metrics", true);
    json.field("chat_template", serving.model().chat_template());
    json.field("bos_token", serving.model().bos()).field("eos_token", serving.model().eos());
    json.field("build_info", fmt::format("quire {}", kVersion)).field("is_sleeping", false);
  });
}

std::string slots_body(Serving& serving) {
  const std::vector<Serving::AnswerInProgress> answers = serving.answers_in_progress();
  std::string body;
  JsonWriter json(body);
  json.begin_array();
  for (std::uint32_t i = 0; i < num_slots(serving); ++i) write_slot(json, i, serving, i < answers.size() ? &answers[i] : nullptr);
  json.end_array();
  return body;
}

bool are_slots_taken(Serving& serving) {
  return serving.answers_in_progress().size() >= num_slots(serving);
}

}  // namespace quire
