#pragma once
// Estimates the duration of each tool: the mean time from the end of a turn that called the tool to the arrival of the job's next turn.
// Clients choose the names of tools, so their number is limited: the tool that was recorded least recently is forgotten first.
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/intrusive_list.h"

namespace quire {

// Keeps a sum and a count per tool. vLLM's fork keeps all gaps and computes their mean, which is the same number.
class ToolTimes {
 public:
  explicit ToolTimes(std::size_t max_tools) : max_tools_(max_tools) {}

  void learn(std::string_view tool, double gap_s);
  // Returns nullopt if the tool is unknown or was forgotten.
  [[nodiscard]] std::optional<double> mean_s(std::string_view tool) const;
  [[nodiscard]] std::size_t size() const { return tools_.size(); }
  // Stops the program if the order of use and the names are inconsistent.
  void check_invariants() const;

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [max_tools, tools, by_use] = self;
    form.named(tools);
    form.by_name(tools, by_use, [](const Tool& /*tool*/) { return true; });
    form.expect(tools.size() <= max_tools, "there are at most max_tools tools");
  }

 private:
  struct Tool {
    template <class Archive, class Self>
    static void fields(Archive& form, Self& self) {
      [[maybe_unused]] auto& [name, sum_s, num_gaps, hook] = self;
      form(sum_s, num_gaps);
      form.expect(num_gaps > 0, "a known tool has at least one gap");
    }

    const std::string* name = nullptr;
    // Sum and number of all gaps that were recorded since the tool was added to the table.
    double sum_s = 0.0;
    std::uint64_t num_gaps = 0;
    ListHook<Tool> hook;
  };
  const std::size_t max_tools_;
  std::map<std::string, Tool, std::less<>> tools_;
  IntrusiveList<Tool, &Tool::hook> by_use_;  // the tool that was recorded least recently comes first
};

}  // namespace quire
