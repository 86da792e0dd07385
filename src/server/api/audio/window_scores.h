#pragma once
// Checks the text of a window by the rules of openai-whisper (decode_with_fallback() and transcribe()). A window is transcribed again at a
// higher temperature if its text is repetitive or has a low mean log probability. A window that probably has no speech is dropped.
#include <optional>
#include <string_view>
#include <vector>

namespace quire {

struct WindowThresholds {
  float max_compression_ratio = 2.4F;  // compression_ratio_threshold
  float min_mean_logprob = -1.0F;      // logprob_threshold
  float max_no_speech_prob = 0.6F;     // no_speech_threshold
  float temperature_increment = 0.2F;  // added for each further attempt; 0: no further attempts
};

struct WindowScores {
  float temperature = 0.0F;
  double mean_logprob = 0.0;                  // mean over the tokens and the end token, after all rules and before the temperature
  std::optional<double> compression_ratio{};  // absent in builds without zlib
  std::optional<double> no_speech_prob{};     // absent: the model does not report it
};

// Returns the size of the text divided by its size when compressed with zlib. Returns nullopt in builds without zlib.
[[nodiscard]] std::optional<double> compression_ratio(std::string_view text);

// Return whether a window must be transcribed again, and whether a window is dropped as silence.
[[nodiscard]] bool needs_retry(const WindowScores& scores, const WindowThresholds& thresholds);
[[nodiscard]] bool is_silence(const WindowScores& scores, const WindowThresholds& thresholds);

// Returns the temperatures of all attempts. If the first temperature is above 0, there is only one attempt, as in OpenAI's API.
[[nodiscard]] std::vector<float> temperatures_from(float first, const WindowThresholds& thresholds);

}  // namespace quire
