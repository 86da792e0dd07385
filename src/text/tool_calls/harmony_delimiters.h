#pragma once
// The control tokens of OpenAI's Harmony format.
#include <array>
#include <string_view>

namespace quire::harmony {

inline constexpr std::string_view kStart = "<|start|>", kEnd = "<|end|>", kMessage = "<|message|>", kChannel = "<|channel|>",
                                  kConstrain = "<|constrain|>", kCall = "<|call|>", kReturn = "<|return|>";
inline constexpr std::array kDelimiters{kStart, kEnd, kMessage, kChannel, kConstrain, kCall, kReturn};

}  // namespace quire::harmony
