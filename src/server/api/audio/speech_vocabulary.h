#pragma once
// The tokens by which Whisper is told what to do, and tells times.
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
  static constexpr std::uint32_t kLastTime = 1500;  // steps: 30 s
  static constexpr double kSecondsPerStep = 0.02;

  TokenId start = 0, end = 0, transcribe = 0, translate = 0, no_times = 0, first_time = 0;
  std::optional<TokenId> previous;                         // before what was said before
  std::optional<TokenId> no_speech;                        // as likely as nobody says anything
  bool is_multilingual = false;                            // else it hears English, and is told neither language nor task
  std::vector<std::pair<std::string, TokenId>> languages;  // "en", ...

  // Errors: `unsupported` (the model has no encoder, or not these tokens).
  static Result<SpeechVocabulary> find(const ServedModel& model, const ModelInfo& info);

  [[nodiscard]] std::optional<TokenId> language(std::string_view code) const;
  [[nodiscard]] bool is_time(TokenId token) const { return token >= first_time; }
  // Of a token that is a time; s.
  [[nodiscard]] double seconds_of(TokenId token) const { return (token - first_time) * kSecondsPerStep; }
};

}  // namespace quire
