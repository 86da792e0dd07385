#pragma once
// A transcript, and its output formats.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/ids.h"
#include "server/api/audio/speech_vocabulary.h"
#include "server/api/audio/window_scores.h"

namespace quire {

enum class TranscriptForm : std::uint8_t { json, verbose_json, text, srt, vtt };

struct SpeechSegment {
  double start_s = 0.0, end_s = 0.0;  // within the recording
  std::string text{};
  std::vector<TokenId> tokens{};  // including timestamps
  double window_s = 0.0;          // beginning of its window within the recording
  WindowScores scores{};          // scores of the window of this segment
};

struct Transcript {
  bool is_translation = false;
  std::string language;  // language code; empty: unknown
  double duration_s = 0.0;
  std::vector<SpeechSegment> segments{};

  [[nodiscard]] std::string text() const;
};

// Return the body of the response and its media type.
[[nodiscard]] std::string write_transcript(const Transcript& transcript, TranscriptForm form);
[[nodiscard]] std::string_view media_type(TranscriptForm form);

// Return events of a stream in OpenAI's format.
[[nodiscard]] std::string delta_event(std::string_view text);
[[nodiscard]] std::string done_event(const Transcript& transcript);

// The segments of a window of `window_s` seconds. cut_window() cuts the outputs, without the end token, between two adjacent timestamps, as
// openai-whisper's transcribe() does.
struct TranscribedWindow {
  struct Part {
    double start_s = 0.0, end_s = 0.0;  // from the beginning of the window
    std::span<const TokenId> tokens;
  };
  std::vector<Part> parts{};
  double next_s = 0.0;  // seconds from the beginning of this window to the next window, which begins at the end of the last complete part
};
[[nodiscard]] TranscribedWindow cut_window(std::span<const TokenId> outputs, double window_s, const SpeechVocabulary& words);

}  // namespace quire
