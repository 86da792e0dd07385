#pragma once
// Writes JSON directly into a string: streams write thousands of small objects a second.
#include <string>
#include <string_view>

namespace quire {

// Appends `text` (valid UTF-8), escaped as Python's json.dumps does: only characters that JSON requires.
void append_json_escaped(std::string& out, std::string_view text);
// Appends the escaped text in quotes.
void append_json_string(std::string& out, std::string_view text);
[[nodiscard]] std::string json_string(std::string_view text);
// Appends the shortest text that reads back as the same float. Infinities and NaN become -9999, as vLLM sends them.
void append_json_float(std::string& out, float value);

}  // namespace quire
