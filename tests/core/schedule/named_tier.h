#pragma once
// A connector whose loads complete when the test says so.
#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/schedule/core_driver.h"
#include "support/scripted_connector.h"

namespace quire::test {

// The tier has the first tokens of the prompts that the test lists.
class NamedTier final : public QuietConnector {
 public:
  std::map<std::uint64_t, std::uint32_t> tokens;
  Ids asked, loaded;
  std::vector<TransferCompletion> begun;  // transfers begun and not yet reported

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
  void plan_transfers(const StepPlan& /*plan*/, TransferList& transfers) override {
    for (const auto& [request, blocks] : wanted_) begun.push_back({.transfer = transfers.add(transfer_of(request, blocks)).value()});
    wanted_.clear();
  }

 private:
  std::uint32_t num_local_ = 0;
  std::vector<std::pair<RequestId, std::vector<BlockId>>> wanted_;
};

}  // namespace quire::test
