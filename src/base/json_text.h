#pragma once
// JSON written straight into a string: streams write thousands of small objects a second.
#include <string>
#include <string_view>

namespace quire {

// Appends `text` (valid UTF-8), escaped as Python's json.dumps does: only what JSON demands.
void append_json_escaped(std::string& out, std::string_view text);
// The same in quotes.
void append_json_string(std::string& out, std::string_view text);
[[nodiscard]] std::string json_string(std::string_view text);
// The shortest text that reads back as the same float; infinities and NaN become -9999, as vLLM sends them.
void append_json_float(std::string& out, float value);

}  // namespace quire
