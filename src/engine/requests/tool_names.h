#pragma once
// The core asks which tool a finished turn calls; the request that brought it along answers. Belongs to the engine thread.
#include <string>
#include <unordered_map>
#include <utility>

#include "quire/connector.h"
#include "quire/engine.h"

namespace quire {

class ToolNames final : public ToolNamer {
 public:
  void put(RequestId id, NameTool name_tool) {
    if (name_tool) by_request_.insert_or_assign(id, std::move(name_tool));
  }
  void forget(RequestId id) { by_request_.erase(id); }

  std::string tool_of(const RequestView& request) override {
    const auto found = by_request_.find(request.id);
    return found != by_request_.end() ? found->second(request.tokens.subspan(request.num_prompt_tokens)) : std::string();
  }

 private:
  std::unordered_map<RequestId, NameTool> by_request_;
};

}  // namespace quire
