#pragma once
// A connector whose blocks come when the test says so.
#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/schedule/core_driver.h"

namespace quire::test {

// Has the first tokens of the prompts that the test names.
class NamedTier final : public Connector {
 public:
  std::map<std::uint64_t, std::uint32_t> tokens;
  Ids asked, loaded;
  std::vector<TransferCompletion> begun;  // and not told of

  ExternalMatch match(const RequestView& request, std::uint32_t num_local_tokens) override {
    asked.push_back(request.id.value);
    num_local_ = num_local_tokens;
    const auto found = tokens.find(request.id.value);
    const std::uint32_t held = found == tokens.end() ? 0 : found->second;
    return {.num_tokens = std::max(held, num_local_tokens) - num_local_tokens, .load_async = true};
  }
  void allocated(const RequestView& request, GroupBlocks groups, std::uint32_t num_external_tokens) override {
    if (num_external_tokens == 0) return;
    const auto blocks = groups[0].subspan(num_local_ / kBlockSize, num_external_tokens / kBlockSize);
    wanted_.emplace_back(request.id, std::vector(blocks.begin(), blocks.end()));
    loaded.push_back(request.id.value);
  }
  bool finished(const RequestView& /*request*/, GroupBlocks /*blocks*/) override { return false; }
  void planned(const StepPlan& /*plan*/) override {}
  void plan_transfers(const StepPlan& /*plan*/, TransferList& transfers) override {
    for (const auto& [request, blocks] : wanted_) {
      const std::vector<std::uint64_t> places(blocks.size(), 0);
      begun.push_back({.transfer = *transfers.add({.id = {}, .request = request, .blocks = blocks, .places = places})});
    }
    wanted_.clear();
  }
  void step_output() override {}
  bool reset() override { return true; }

 private:
  std::uint32_t num_local_ = 0;
  std::vector<std::pair<RequestId, std::vector<BlockId>>> wanted_;
};

}  // namespace quire::test
