#pragma once
// Makes names from an untrusted file safe for an error message.
#include <string>
#include <string_view>

namespace quire {

// Returns the text in single quotes, cut after 64 bytes, with control characters and bytes above 0x7e as \xNN.
std::string in_quotes(std::string_view text);

}  // namespace quire
