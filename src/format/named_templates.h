#pragma once
// Combines the chat templates of models that have a separate template for requests with tools (Hermes, Command R).
#include <string>

namespace quire {

// Returns one template that renders `tool_use` if the request has tools and `by_default` otherwise, as in transformers and vLLM. If one of
// the two is empty, returns the other.
[[nodiscard]] std::string with_tool_use(std::string by_default, std::string tool_use);

}  // namespace quire
