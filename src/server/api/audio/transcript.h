#pragma once
// What was heard, and how it is written down.
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
  double start_s = 0.0, end_s = 0.0;  // of the recording
  std::string text{};
  std::vector<TokenId> tokens{};  // times included
  double window_s = 0.0;          // where the window begins that it was heard in
  WindowScores scores{};          // of that window
};

struct Transcript {
  bool is_translation = false;
  std::string language;  // a code; empty: not known
  double duration_s = 0.0;
  std::vector<SpeechSegment> segments{};

  [[nodiscard]] std::string text() const;
};

// The body of the answer, and its media type.
[[nodiscard]] std::string write_transcript(const Transcript& transcript, TranscriptForm form);
[[nodiscard]] std::string_view media_type(TranscriptForm form);

// Events of a stream, as OpenAI has them.
[[nodiscard]] std::string delta_event(std::string_view text);
[[nodiscard]] std::string done_event(const Transcript& transcript);

// What a window of so many seconds gave: outputs without the end, cut into segments where two times stand side by side
// (openai-whisper's transcribe()).
struct HeardWindow {
  struct Part {
    double start_s = 0.0, end_s = 0.0;  // from the begin of the window
    std::span<const TokenId> tokens;
  };
  std::vector<Part> parts{};
  double next_s = 0.0;  // where the next window begins: behind the last part that is whole
};
[[nodiscard]] HeardWindow cut_window(std::span<const TokenId> outputs, double window_s, const SpeechVocabulary& words);

}  // namespace quire
