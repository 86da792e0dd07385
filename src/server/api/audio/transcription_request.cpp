// Reads the form of a transcription request field by field. Called where the body is read, in the job pool; changes no shared state. All
// fields come from a client. Each error names its field.
#include "server/api/audio/transcription_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "server/api/audio/form_data.h"
#include "server/http/error_response.h"
#include "server/request/served_model.h"

namespace quire {
namespace {

constexpr std::size_t kMaxTextBytes = 16 << 10;

// Reads the text fields of a form, each at most once. Stores the first error.
class FormReader {
 public:
  explicit FormReader(const std::vector<FormPart>& parts) {
    for (const FormPart& part : parts) {
      if (part.name == "file") continue;
      if (part.value.size() > kMaxTextBytes)
        reject(part.name, fmt::format("is too long, with {} bytes", part.value.size()), "send a shorter text");
      values_[part.name].push_back(part.value);
    }
  }

  std::vector<std::string_view> all(const std::string& name) {
    auto node = values_.extract(name);
    return node.empty() ? std::vector<std::string_view>() : std::move(node.mapped());
  }
  std::optional<std::string_view> one(const std::string& name) {
    const auto values = all(name);
    if (values.size() > 1) reject(name, "is given more than once", "send it once");
    return values.empty() ? std::nullopt : std::optional(values.front());
  }
  template <class Number>
  std::optional<Number> number(const std::string& name) {
    const auto text = one(name);
    if (!text || text->empty()) return std::nullopt;
    Number value{};
    const auto [end, code] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (code != std::errc() || end != text->data() + text->size())
      reject(name, fmt::format("'{}' is not a valid number", shown(*text)), "");
    return value;
  }
  bool boolean(const std::string& name, bool otherwise = false) {
    const std::string_view text = one(name).value_or(otherwise ? "true" : "false");
    const bool is_true = text == "true" || text == "True" || text == "1";
    if (!is_true && text != "false" && text != "False" && text != "0")
      reject(name, fmt::format("is '{}'", shown(text)), "send true or false");
    return is_true;
  }
  void reject(std::string field, std::string problem, std::string remedy, ErrorCode code = ErrorCode::invalid_argument) {
    if (!error_) error_ = Error{code, std::move(field), std::move(problem), std::move(remedy)};
  }
  // Returns the names of fields that were not read, joined by commas.
  [[nodiscard]] std::string rest() const {
    std::string names;
    for (const auto& [name, values] : values_) names += (names.empty() ? "" : ",") + shown(name);
    return names;
  }
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }

 private:
  std::map<std::string, std::vector<std::string_view>> values_;
  std::optional<Error> error_;
};

void read_form_of_answer(FormReader& reader, TranscriptionRequest& request) {
  constexpr std::array kForms{std::pair("json", TranscriptForm::json), std::pair("verbose_json", TranscriptForm::verbose_json),
                              std::pair("text", TranscriptForm::text), std::pair("srt", TranscriptForm::srt),
                              std::pair("vtt", TranscriptForm::vtt)};
  const std::string_view name = reader.one("response_format").value_or("json");
  const auto* form = std::ranges::find(kForms, name, [](const auto& entry) { return std::string_view(entry.first); });
  if (form == kForms.end())
    reader.reject("response_format", fmt::format("is '{}'", shown(name)), "use json, verbose_json, text, srt or vtt");
  else
    request.form = form->second;
  request.stream = reader.boolean("stream");
  if (request.stream && request.form != TranscriptForm::json && request.form != TranscriptForm::text)
    reader.reject("stream", fmt::format("is not supported with response_format {}", name),
                  "use response_format json or text, or leave it out");
  for (const char* field : {"timestamp_granularities[]", "timestamp_granularities"}) {
    for (const std::string_view kind : reader.all(field)) {
      if (kind == "segment") continue;
      reader.reject("timestamp_granularities", fmt::format("contains '{}', but timestamps are available only for segments", shown(kind)),
                    "send segment", kind == "word" ? ErrorCode::unsupported : ErrorCode::invalid_argument);
    }
  }
}

void read_language(FormReader& reader, const SpeechVocabulary& words, TranscriptionRequest& request) {
  request.language = reader.one("language").value_or("");
  if (!words.is_multilingual) {
    if (request.is_translation)
      reader.reject("model", "supports English only and cannot translate", "use /v1/audio/transcriptions", ErrorCode::unsupported);
    if (!request.language.empty() && request.language != "en")
      reader.reject("language", fmt::format("is '{}', but this model supports English only", shown(request.language)), "send en");
    request.language = "en";
  } else if (!request.language.empty() && !words.language(request.language)) {
    reader.reject("language", fmt::format("'{}' is not a language of this model", shown(request.language)),
                  "send an ISO 639-1 code such as en, or leave it out");
  }
}

void read_sampling(FormReader& reader, const RequestContext& context, SamplingParams& sampling) {
  const GenerationDefaults& defaults = context.options.generation_defaults;
  sampling.temperature = reader.number<float>("temperature").value_or(0.0F);
  sampling.top_p = reader.number<float>("top_p").value_or(static_cast<float>(defaults.top_p.value_or(1.0)));
  sampling.top_k = std::max(reader.number<std::int32_t>("top_k").value_or(0), 0);
  sampling.min_p = reader.number<float>("min_p").value_or(0.0F);
  sampling.repetition_penalty = reader.number<float>("repetition_penalty").value_or(1.0F);
  sampling.frequency_penalty = reader.number<float>("frequency_penalty").value_or(0.0F);
  sampling.presence_penalty = reader.number<float>("presence_penalty").value_or(0.0F);
  sampling.seed = reader.number<std::uint64_t>("seed");
}

// Reads the fields whose names come from openai-whisper.
void read_rules(FormReader& reader, TranscriptionRequest& request) {
  WindowThresholds& thresholds = request.thresholds;
  for (const auto& [name, value] : {std::pair("compression_ratio_threshold", &thresholds.max_compression_ratio),
                                    std::pair("logprob_threshold", &thresholds.min_mean_logprob),
                                    std::pair("temperature_increment_on_fallback", &thresholds.temperature_increment)})
    *value = reader.number<float>(name).value_or(*value);
  constexpr float kLeastIncrement = 0.05F;
  if (thresholds.temperature_increment != 0.0F && !(thresholds.temperature_increment >= kLeastIncrement))
    reader.reject("temperature_increment_on_fallback", "is too small", fmt::format("send 0 or at least {}", kLeastIncrement));
  request.conditions_on_previous = reader.boolean("condition_on_previous_text", true);
  request.keeps_previous = reader.boolean("carry_initial_prompt");
}

void read_prompt(FormReader& reader, const SpeechModel& speech, const ServedModel& model, TranscriptionRequest& request) {
  const std::string_view text = reader.one("prompt").value_or("");
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return;
  if (!speech.words.previous) return reader.reject("prompt", "is not supported: the model has no <|startofprev|> token", "leave it out");
  auto tokens = model.tokenizer().encode(fmt::format(" {}", text.substr(text.find_first_not_of(" \t\r\n"))), {.add_special = false});
  if (!tokens) return reader.reject("prompt", tokens.error().message, "send a shorter prompt");
  // Keeps the last tokens, because Whisper was trained to be conditioned on the end of the earlier text.
  const std::size_t most = speech.max_model_len / 2 - 1;
  if (tokens->size() > most) tokens->erase(tokens->begin(), tokens->end() - static_cast<std::ptrdiff_t>(most));
  request.previous = *std::move(tokens);
}

Result<std::string_view> file_of(const std::vector<FormPart>& parts) {
  const auto is_file = [](const FormPart& part) { return part.name == "file"; };
  const auto count = std::ranges::count_if(parts, is_file);
  if (count != 1)
    return fail(ErrorCode::invalid_argument, "file", count == 0 ? "is missing" : "is given more than once", "send one audio file");
  const auto part = std::ranges::find_if(parts, is_file);
  if (part->value.empty()) return fail(ErrorCode::invalid_argument, "file", "is empty", "send an audio file");
  return part->value;
}

}  // namespace

Result<TranscriptionRequest> read_transcription(std::string_view content_type, std::string_view body, bool is_translation,
                                                const SpeechModel& speech, const RequestContext& context, std::string_view& file) {
  const auto parts = parse_form(content_type, body);
  if (!parts) return std::unexpected(parts.error());
  const auto found = file_of(*parts);
  if (!found) return std::unexpected(found.error());
  file = *found;
  FormReader reader(*parts);
  TranscriptionRequest request;
  request.is_translation = is_translation;
  if (auto model = context.model.adapter_of(std::string(reader.one("model").value_or(""))); !model)
    return std::unexpected(std::move(model.error()));
  read_form_of_answer(reader, request);
  read_language(reader, speech.words, request);
  read_sampling(reader, context, request.sampling);
  read_rules(reader, request);
  read_prompt(reader, speech, context.model, request);
  request.ignored_fields = reader.rest();
  if (!request.ignored_fields.empty() && context.options.strict_fields)
    reader.reject(request.ignored_fields, "is unknown, which --strict-fields forbids", "leave it out");
  if (const auto& error = reader.error()) return std::unexpected(*error);
  if (auto valid = request.sampling.validate(); !valid) return std::unexpected(std::move(valid.error()));
  return request;
}

namespace {

// Returns whether the language must be detected. The model then outputs the tokens before the text, instead of getting them in the prompt.
bool begins_as_outputs(const SpeechVocabulary& words, const WindowTask& task) {
  return words.is_multilingual && !words.language(task.language);
}

// Returns the allowed tokens for each position between the start token and the text.
std::vector<std::vector<TokenId>> begins_of(const TranscriptionRequest& request, const SpeechVocabulary& words, const WindowTask& task) {
  std::vector<std::vector<TokenId>> begins;
  if (words.is_multilingual) {
    std::vector<TokenId> spoken;
    if (const auto known = words.language(task.language))
      spoken = {*known};
    else
      for (const auto& [code, token] : words.languages) spoken.push_back(token);
    begins = {std::move(spoken), {request.is_translation ? words.translate : words.transcribe}};
  }
  if (!task.has_timestamps) begins.push_back({words.no_timestamps});
  return begins;
}

}  // namespace

std::vector<TokenId> prompt_of(const TranscriptionRequest& request, const SpeechVocabulary& words, const WindowTask& task) {
  std::vector<TokenId> prompt;
  if (words.previous && !task.previous.empty()) {
    prompt.push_back(*words.previous);
    prompt.insert(prompt.end(), task.previous.begin(), task.previous.end());
  }
  prompt.push_back(words.start);
  if (!begins_as_outputs(words, task))
    for (const std::vector<TokenId>& only : begins_of(request, words, task)) prompt.push_back(only.front());
  return prompt;
}

SamplingParams sampling_of(const TranscriptionRequest& request, const SpeechModel& speech, const WindowTask& task) {
  const SpeechVocabulary& words = speech.words;
  SamplingParams sampling = request.sampling;
  sampling.temperature = task.temperature;
  // Later attempts use a fixed seed, so that the same request always gets the same text.
  if (task.temperature != request.sampling.temperature && !sampling.seed) sampling.seed = 0;
  sampling.max_tokens = speech.max_model_len / 2;
  sampling.stop_token_ids = {words.end};
  sampling.logprobs = 0;
  sampling.timestamps = {.first_time = words.first_time,
                         .end = words.end,
                         .max_first = speech.speech.max_first_time,
                         .has_timestamps = task.has_timestamps,
                         .not_first = speech.speech.not_first,
                         .begins = {}};
  for (const TokenId token : speech.speech.suppressed) sampling.bad_words.push_back({token});
  // openai-whisper also suppresses these control tokens, which are never part of a text.
  for (const TokenId token : {words.start, words.transcribe, words.translate, words.no_timestamps}) sampling.bad_words.push_back({token});
  if (begins_as_outputs(words, task)) sampling.timestamps.begins = begins_of(request, words, task);
  sampling.max_tokens += static_cast<std::uint32_t>(sampling.timestamps.begins.size());
  return sampling;
}

}  // namespace quire
