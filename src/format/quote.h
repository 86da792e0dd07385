#pragma once
// Names from a file that may lie, made safe for an error message.
#include <string>
#include <string_view>

namespace quire {

// In single quotes; control characters and bytes above 0x7e as \xNN; cut after 64 bytes.
std::string in_quotes(std::string_view text);

}  // namespace quire
