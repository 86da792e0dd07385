#pragma once
// The answers of these seams depend only on the calls and on random numbers that a copy draws too. Two cores with copies of the same seams
// get equal answers as long as they make equal calls.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "quire/core.h"
#include "support/scripted_connector.h"

namespace quire::test {

// State from which the answers are computed.
struct SeamNumbers {
  struct Moved {
    RequestId request;
    std::uint32_t group = 0;
    TransferDirection direction = TransferDirection::load;
    TransferNeed need = TransferNeed::nothing;
    std::vector<BlockId> blocks;
  };
  Random random{0};
  std::uint32_t block_size = 1;
  bool moves = false;  // the connector transfers blocks itself; otherwise the host reports them
  std::map<RequestId, std::pair<std::uint32_t, bool>> last_matches;  // local tokens; whether the request waits for the others
  std::vector<Moved> wanted;                                         // transfers requested in the next plan
};

class TwinSeams final : public QuietConnector, public EncoderConnector, public Grammar, public ToolNamer {
 public:
  SeamNumbers numbers;

  [[nodiscard]] bool supports_groups() const override { return true; }
  ExternalMatch match(const RequestView& request, std::uint32_t num_local_tokens) override {
    const auto most = static_cast<std::uint32_t>(request.tokens.size()) - num_local_tokens;
    const bool is_async = one_in(2);
    numbers.last_matches[request.id] = {num_local_tokens, is_async};
    if (one_in(2) || most < 2) return {.num_tokens = 0, .load_async = false};
    if (one_in(4)) return {};
    return {.num_tokens = static_cast<std::uint32_t>(numbers.random.below(most)), .load_async = is_async};
  }
  void allocated(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens) override {
    if (!numbers.moves || num_external_tokens == 0) return;
    const auto [num_local, is_async] = numbers.last_matches[request.id];
    for (std::uint32_t group = 0; group < blocks.size(); ++group) {
      SeamNumbers::Moved load{
          .request = request.id, .group = group, .need = is_async ? TransferNeed::nothing : TransferNeed::step, .blocks = {}};
      const std::size_t end = (num_local + num_external_tokens + numbers.block_size - 1) / numbers.block_size;
      for (std::size_t i = num_local / numbers.block_size; i < std::min(end, blocks[group].size()); ++i)
        if (blocks[group][i] != kNullBlock) load.blocks.push_back(blocks[group][i]);
      if (!load.blocks.empty()) numbers.wanted.push_back(std::move(load));
    }
  }
  bool finished(const RequestView& request, GroupBlocks blocks) override {
    forget(request.id);
    numbers.last_matches.erase(request.id);
    if (!one_in(3)) return false;
    if (!numbers.moves) return true;
    SeamNumbers::Moved store{.request = request.id, .direction = TransferDirection::store, .blocks = {}};
    for (const BlockId block : blocks.empty() ? std::span<const BlockId>() : blocks[0])
      if (block != kNullBlock && std::ranges::find(store.blocks, block) == store.blocks.end()) store.blocks.push_back(block);
    if (store.blocks.empty()) return false;
    numbers.wanted.push_back(std::move(store));
    return true;
  }
  void plan_transfers(const StepPlan& /*plan*/, TransferList& transfers) override {
    std::vector<SeamNumbers::Moved> refused;
    for (SeamNumbers::Moved& moved : std::exchange(numbers.wanted, {})) {
      const std::vector<std::uint64_t> places(moved.blocks.size(), 7);
      const auto id = transfers.add({.id = {},
                                     .request = moved.request,
                                     .direction = moved.direction,
                                     .need = moved.need,
                                     .group = moved.group,
                                     .tier = 3,
                                     .blocks = moved.blocks,
                                     .places = places});
      // A transfer that one step needed is too late for the next step.
      if (!id && moved.need == TransferNeed::nothing) refused.push_back(std::move(moved));
    }
    numbers.wanted = std::move(refused);
  }
  void invalidated(const RequestView& request, std::uint32_t /*num_valid_tokens*/) override { forget(request.id); }
  void sent(RequestId request) override { forget(request); }
  bool reset() override { return one_in(2); }

  bool has(std::string_view identifier) override { return identifier == "b"; }
  void allocated(const RequestView& /*request*/, std::uint32_t /*index*/) override {}

  bool ready(RequestId /*id*/) override { return one_in(2); }
  bool should_advance(const RequestView& /*request*/) override { return one_in(2); }
  bool accept(RequestId /*id*/, std::span<const TokenId> /*tokens*/) override { return one_in(2); }
  std::uint32_t count_valid(RequestId /*id*/, std::span<const TokenId> drafts) override {
    return static_cast<std::uint32_t>(numbers.random.below(drafts.size() + 1));
  }
  bool fork(RequestId /*parent*/, RequestId /*child*/, std::uint32_t /*num_outputs*/) override { return one_in(2); }

  std::string tool_of(const RequestView& request) override { return request.tokens.back() == 0 ? "" : "grep"; }

 private:
  void forget(RequestId request) {
    std::erase_if(numbers.wanted, [&](const SeamNumbers::Moved& moved) { return moved.request == request; });
  }
  bool one_in(std::uint64_t many) { return numbers.random.below(many) == 0; }
};

}  // namespace quire::test
