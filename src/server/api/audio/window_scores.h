#pragma once
// Checks the text of a window by the rules of openai-whisper (decode_with_fallback() and transcribe()). A text that repeats itself, or that
// the model itself finds unlikely, is tried again at a higher temperature. A window that likely has no speech is left out.
#include <optional>
#include <string_view>
#include <vector>

namespace quire {

struct WindowThresholds {
  float max_compression_ratio = 2.4F;  // compression_ratio_threshold
  float min_mean_logprob = -1.0F;      // logprob_threshold
  float max_no_speech_prob = 0.6F;     // no_speech_threshold
  float temperature_increment = 0.2F;  // added for each further attempt; 0: there is only one attempt
};

struct WindowScores {
  float temperature = 0.0F;
  double mean_logprob = 0.0;                  // over the tokens and the end token, after all rules and before the temperature
  std::optional<double> compression_ratio{};  // absent: this build cannot compute it
  std::optional<double> no_speech_prob{};     // absent: the model does not report it
};

// Returns the size of the text divided by its size when compressed with zlib. nullopt: this build has no zlib.
[[nodiscard]] std::optional<double> compression_ratio(std::string_view text);

// Return whether a window must be tried again, and whether it is left out as silence.
[[nodiscard]] bool needs_retry(const WindowScores& scores, const WindowThresholds& thresholds);
[[nodiscard]] bool is_silence(const WindowScores& scores, const WindowThresholds& thresholds);

// Returns the temperatures of all attempts. A first temperature above 0 is the only one, as in OpenAI's API.
[[nodiscard]] std::vector<float> temperatures_from(float first, const WindowThresholds& thresholds);

}  // namespace quire
