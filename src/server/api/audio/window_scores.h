#pragma once
// What speaks against the text of a window, by the rules of openai-whisper (decode_with_fallback() and transcribe()): a text that repeats
// itself, or that the model itself finds unlikely, is tried again at a higher temperature, and what is likely no speech is left out.
#include <optional>
#include <string_view>
#include <vector>

namespace quire {

struct HearingRules {
  float most_compression = 2.4F;       // compression_ratio_threshold
  float least_mean_logprob = -1.0F;    // logprob_threshold
  float most_no_speech = 0.6F;         // no_speech_threshold
  float temperature_increment = 0.2F;  // of each further try; 0: there is none
};

struct WindowScores {
  float temperature = 0.0F;
  double mean_logprob = 0.0;                  // of the tokens and the end, after all rules and before the temperature
  std::optional<double> compression_ratio{};  // none: this build cannot tell
  std::optional<double> no_speech_prob{};     // none: the model does not say
};

// The text's bytes by those that zlib makes of them.
[[nodiscard]] std::optional<double> compression_ratio(std::string_view text);

[[nodiscard]] bool is_doubtful(const WindowScores& scores, const HearingRules& rules);
[[nodiscard]] bool is_silence(const WindowScores& scores, const HearingRules& rules);

// Of all tries; a first one that is not 0 is the only one, as OpenAI has it.
[[nodiscard]] std::vector<float> temperatures_from(float first, const HearingRules& rules);

}  // namespace quire
