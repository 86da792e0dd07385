#pragma once
// Reads from a Whisper folder how tokens are sampled.
#include <cstdint>
#include <string>

#include "quire/base/model_info.h"

namespace quire {

// Reads generation_config.json, or config.json of older folders without generation_config.json. Omits missing values, and tokens that the
// model does not have.
SpeechInfo speech_info(const std::string& folder, std::uint32_t vocab_size);

}  // namespace quire
