#pragma once
// Reads and checks a form of /v1/audio/transcriptions or /v1/audio/translations.
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "audio/log_mel.h"
#include "quire/base/sampling.h"
#include "server/api/audio/speech_vocabulary.h"
#include "server/api/audio/transcript.h"
#include "server/api/audio/window_scores.h"
#include "server/request/request_context.h"

namespace quire {

struct TranscriptionRequest {
  TranscriptForm form = TranscriptForm::json;
  bool is_translation = false;
  bool stream = false;
  std::string language;                // language code; empty: it must be detected
  std::vector<TokenId> previous;       // tokens of the client's text before the recording (`prompt`)
  bool keeps_previous = false;         // carry_initial_prompt: every window gets `previous`, not only the first window
  bool conditions_on_previous = true;  // condition_on_previous_text: a window is conditioned on earlier windows
  SamplingParams sampling;
  WindowThresholds thresholds;
  std::string ignored_fields;  // field names joined by commas
  std::shared_ptr<const std::vector<float>> samples;
};

// The data about the speech model that all requests share.
struct SpeechModel {
  SpeechVocabulary words;
  SpeechInfo speech;
  LogMel mel;
  std::uint32_t max_model_len = 0;
};

// Reads all fields except the file, and sets `file` to a view of the file's content. Errors name the field.
Result<TranscriptionRequest> read_transcription(std::string_view content_type, std::string_view body, bool is_translation,
                                                const SpeechModel& speech, const RequestContext& context, std::string_view& file);

// Describes one attempt to transcribe a window.
struct WindowTask {
  std::string_view language;  // language code; empty: it must be detected
  bool has_timestamps = false;
  bool is_checked = false;  // the window is checked for repetition and silence
  std::span<const TokenId> previous{};
  float temperature = 0.0F;
};

// Return the prompt and the sampling parameters of a window. Without a language the prompt ends with the start token; the model then
// outputs the language and the tokens after it (TimestampRules::begins).
[[nodiscard]] std::vector<TokenId> prompt_of(const TranscriptionRequest& request, const SpeechVocabulary& words, const WindowTask& task);
[[nodiscard]] SamplingParams sampling_of(const TranscriptionRequest& request, const SpeechModel& speech, const WindowTask& task);

}  // namespace quire
