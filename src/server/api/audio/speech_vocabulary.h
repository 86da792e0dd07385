#pragma once
// Whisper's special tokens: language, task and timestamps.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quire/base/error.h"
#include "quire/base/ids.h"
#include "quire/base/model_info.h"

namespace quire {

class ServedModel;

struct SpeechVocabulary {
  static constexpr std::uint32_t kLastTimestamp = 1500;  // in steps: 30 s
  static constexpr double kSecondsPerStep = 0.02;

  TokenId start = 0, end = 0, transcribe = 0, translate = 0, no_timestamps = 0, first_time = 0;
  std::optional<TokenId> previous;                         // precedes the earlier text in a prompt
  std::optional<TokenId> no_speech;                        // its probability is the probability that the window has no speech
  bool is_multilingual = false;                            // false: the model supports English only, and takes no language or task token
  std::vector<std::pair<std::string, TokenId>> languages;  // "en", ...

  // Finds the tokens in the model's vocabulary. Errors: `unsupported` if the model has no encoder or not all of these tokens.
  static Result<SpeechVocabulary> find(const ServedModel& model, const ModelInfo& info);

  [[nodiscard]] std::optional<TokenId> language(std::string_view code) const;
  [[nodiscard]] bool is_timestamp(TokenId token) const { return token >= first_time; }
  // Returns the time of a timestamp token, in seconds from the beginning of its window.
  [[nodiscard]] double seconds_of(TokenId token) const { return (token - first_time) * kSecondsPerStep; }
};

}  // namespace quire
