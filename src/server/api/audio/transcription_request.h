#pragma once
// A form of /v1/audio/transcriptions or /v1/audio/translations, read and checked.
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/sampling.h"
#include "server/api/audio/speech_vocabulary.h"
#include "server/api/audio/transcript.h"
#include "server/api/audio/window_scores.h"
#include "server/request/request_context.h"
#include "sound/log_mel.h"

namespace quire {

struct TranscriptionRequest {
  TranscriptForm form = TranscriptForm::json;
  bool is_translation = false;
  bool stream = false;
  std::string language;           // a code; empty: to be found out
  std::vector<TokenId> previous;  // what was said before, as the client says
  bool keeps_previous = false;    // each window is told these first, and not the first one alone (carry_initial_prompt)
  bool goes_on = true;            // a window is told what was heard before it (condition_on_previous_text)
  SamplingParams sampling;
  HearingRules rules;
  std::string ignored_fields;  // joined by commas
  std::shared_ptr<const std::vector<float>> samples;
};

// What all requests share.
struct SpeechModel {
  SpeechVocabulary words;
  SpeechInfo speech;
  LogMel mel;
  std::uint32_t max_model_len = 0;
};

// Reads all but the file, which `file` views afterwards. Errors name the field.
Result<TranscriptionRequest> read_transcription(std::string_view content_type, std::string_view body, bool is_translation,
                                                const SpeechModel& speech, const RequestContext& context, std::string_view& file);

// How a window is heard.
struct WindowTask {
  std::string_view language;  // empty: to be found out
  bool has_times = false;
  bool is_judged = false;  // how likely it is that nobody speaks is asked, too
  std::span<const TokenId> previous{};
  float temperature = 0.0F;
};

// What Whisper is told before it writes, and how it may. Without a language, and to be judged, it is told no more than that a text begins:
// the language and what follows it are then the first outputs (TimestampRules::begins).
[[nodiscard]] std::vector<TokenId> prompt_of(const TranscriptionRequest& request, const SpeechVocabulary& words, const WindowTask& task);
[[nodiscard]] SamplingParams sampling_of(const TranscriptionRequest& request, const SpeechModel& speech, const WindowTask& task);

}  // namespace quire
