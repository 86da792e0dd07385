#pragma once
// Makes names from an untrusted file safe to print in an error message.
#include <string>
#include <string_view>

namespace quire {

// Returns the text in single quotes, truncated to 64 bytes. Writes control characters and bytes above 0x7e as \xNN.
std::string in_quotes(std::string_view text);

}  // namespace quire
