#include "core/agent/tool_times.h"

#include "base/check.h"

namespace quire {

void ToolTimes::learn(std::string_view tool, double gap_s) {
  QUIRE_CHECK(max_tools_ > 0, "the table has room for at least one tool");
  auto found = tools_.find(tool);
  if (found == tools_.end()) {
    if (tools_.size() == max_tools_) {
      Tool& oldest = *by_use_.front();
      by_use_.remove(oldest);
      tools_.erase(tools_.find(*oldest.name));
    }
    found = tools_.try_emplace(std::string(tool)).first;
    found->second.name = &found->first;
  } else {
    by_use_.remove(found->second);
  }
  QUIRE_CHECK(tools_.size() <= max_tools_, "the table holds at most max_tools tools");
  Tool& known = found->second;
  by_use_.push_back(known);
  known.sum_s += gap_s;
  ++known.num_gaps;
}

void ToolTimes::check_invariants() const {
  QUIRE_CHECK(by_use_.size() == tools_.size() && tools_.size() <= max_tools_,
              "each tool is in the order of use, and there are at most max_tools tools");
  for (const auto& [name, tool] : tools_) {
    QUIRE_CHECK(tool.name == &name && tool.num_gaps > 0, "a tool points to its name in the table and has at least one gap");
    QUIRE_CHECK((IntrusiveList<Tool, &Tool::hook>::linked(tool)), "each tool is in the order of use");
  }
}

std::optional<double> ToolTimes::mean_s(std::string_view tool) const {
  const auto found = tools_.find(tool);
  if (found == tools_.end()) return std::nullopt;
  QUIRE_CHECK(found->second.num_gaps > 0, "a known tool has at least one gap");
  return found->second.sum_s / static_cast<double>(found->second.num_gaps);
}

}  // namespace quire
