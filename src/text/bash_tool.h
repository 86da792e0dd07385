#pragma once
// Finds the tool that a model calls by the convention of mini-swe-agent: the answer contains one bash command in a fenced block.
#include <string>
#include <string_view>

namespace quire {

// Returns the first word of the only bash block in `text`. A line "```bash" opens a block, and a line that begins with "```" closes it.
// Returns an empty string if there is no block or more than one. Equals the pattern in the fork hungchun0201/vllm-pace (Apache-2.0):
// "```bash\s*\n(.*?)\n```".
[[nodiscard]] std::string bash_tool(std::string_view text);

}  // namespace quire
