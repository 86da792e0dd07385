#pragma once
// Which tool a model calls, by the convention of mini-swe-agent: its answer holds one bash command in a fence.
#include <string>
#include <string_view>

namespace quire {

// The first word of the only block that a line "```bash" opens and a line that begins with "```" closes; empty if there is no such block,
// or more than one. The rule is that of the fork hungchun0201/vllm-pace (Apache-2.0), whose pattern is "```bash\s*\n(.*?)\n```".
[[nodiscard]] std::string bash_tool(std::string_view text);

}  // namespace quire
