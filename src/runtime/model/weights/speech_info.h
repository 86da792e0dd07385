#pragma once
// What a Whisper folder says about how its answers are drawn.
#include <cstdint>
#include <string>

#include "quire/base/model_info.h"

namespace quire {

// Of generation_config.json, or of config.json where that is not there, as in old folders. What is missing, or names tokens that the model
// has not, is left out.
SpeechInfo speech_info(const std::string& folder, std::uint32_t vocab_size);

}  // namespace quire
