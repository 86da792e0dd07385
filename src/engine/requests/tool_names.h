#pragma once
// Returns the tool that a finished turn calls, by calling the function that the turn's request provided. Belongs to the engine thread.
#include <string>
#include <unordered_map>
#include <utility>

#include "quire/connector.h"
#include "quire/engine.h"

namespace quire {

class ToolNames final : public ToolNamer {
 public:
  void put(RequestId id, ToolNameFunction tool_name_function) {
    if (tool_name_function) by_request_.insert_or_assign(id, std::move(tool_name_function));
  }
  void forget(RequestId id) { by_request_.erase(id); }

  std::string tool_of(const RequestView& request) override {
    const auto found = by_request_.find(request.id);
    return found != by_request_.end() ? found->second(request.tokens.subspan(request.num_prompt_tokens)) : std::string();
  }

 private:
  std::unordered_map<RequestId, ToolNameFunction> by_request_;
};

}  // namespace quire
