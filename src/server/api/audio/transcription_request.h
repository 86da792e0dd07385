#pragma once
// A form of /v1/audio/transcriptions or /v1/audio/translations, read and checked.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "quire/sampling.h"
#include "server/api/audio/speech_vocabulary.h"
#include "server/api/audio/transcript.h"
#include "server/request/request_context.h"
#include "sound/log_mel.h"

namespace quire {

struct TranscriptionRequest {
  TranscriptForm form = TranscriptForm::json;
  bool is_translation = false;
  bool stream = false;
  std::string language;           // a code; empty: to be found out
  std::vector<TokenId> previous;  // what was said before, as the client says
  SamplingParams sampling;
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

// What Whisper is told before it writes, and how it may. Without a language it is told no more than that a text begins: the language and
// what follows it are then the first outputs (TimestampRules::begins).
[[nodiscard]] std::vector<TokenId> prompt_of(const TranscriptionRequest& request, const SpeechVocabulary& words, std::string_view language,
                                             bool has_times);
[[nodiscard]] SamplingParams sampling_of(const TranscriptionRequest& request, const SpeechModel& speech, std::string_view language,
                                         bool has_times);

}  // namespace quire
