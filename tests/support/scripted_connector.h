#pragma once
// Seams that answer what a test wrote down, and write down what they are asked.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "quire/base/plan.h"
#include "quire/connector.h"

namespace quire::test {

class ScriptedConnector final : public Connector {
 public:
  // What the test says.
  std::map<RequestId, ExternalMatch> matches;  // others: nothing
  std::set<RequestId> keeps_blocks;            // of these, once finished
  bool resets = true;
  bool reverses_failed = false;  // failed loads finish in the reverse of the scan's order

  // What was asked, in order, e.g. "finished 7 status=8 blocks=[1 2]".
  std::vector<std::string> log;

  [[nodiscard]] std::vector<std::string> take_log() { return std::exchange(log, {}); }

  ExternalMatch match(const RequestView& request, std::uint32_t num_local_tokens) override {
    log.push_back(fmt::format("match {} local={}", request.id.value, num_local_tokens));
    const auto found = matches.find(request.id);
    return found == matches.end() ? ExternalMatch{.num_tokens = 0, .load_async = false} : found->second;
  }
  void allocated(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens) override {
    log.push_back(fmt::format("allocated {} blocks={} external={}", request.id.value, text(blocks), num_external_tokens));
  }
  bool finished(const RequestView& request, GroupBlocks blocks) override {
    log.push_back(fmt::format("finished {} status={} blocks={}", request.id.value, static_cast<int>(request.status), text(blocks)));
    return keeps_blocks.contains(request.id);
  }
  void planned(const StepPlan& plan) override { log.push_back(fmt::format("planned {}", plan.num_scheduled_tokens)); }
  void order_failed(std::size_t num_async, std::span<RequestId> finishing, std::span<RequestId> /*reported*/) override {
    log.push_back(fmt::format("order_failed {} of {}", num_async, finishing.size()));
    if (reverses_failed) std::ranges::reverse(finishing);
  }
  void forget_blocks(const RequestView& request) override { log.push_back(fmt::format("forget {}", request.id.value)); }
  void step_output() override { log.emplace_back("step_output"); }
  bool reset() override {
    log.emplace_back("reset");
    return resets;
  }

 private:
  static std::string text(GroupBlocks groups) {
    std::string result;
    for (const auto& blocks : groups) {
      std::vector<std::uint32_t> ids;
      std::ranges::transform(blocks, std::back_inserter(ids), &BlockId::value);
      result += fmt::format("[{}]", fmt::join(ids, " "));
    }
    return result;
  }
};

// Takes tokens below `limit` in order; ready and advancing for all requests unless the test says otherwise.
class ScriptedGrammar : public Grammar {
 public:
  TokenId limit = 100;
  std::set<RequestId> not_ready, not_advancing, not_forking;
  std::vector<std::string> log;

  bool ready(RequestId id) override { return !not_ready.contains(id); }
  bool should_advance(const RequestView& request) override { return !not_advancing.contains(request.id); }
  bool accept(RequestId id, std::span<const TokenId> tokens) override {
    log.push_back(fmt::format("accept {} [{}]", id.value, fmt::join(tokens, " ")));
    return count_valid(id, tokens) == tokens.size();
  }
  std::uint32_t count_valid(RequestId /*id*/, std::span<const TokenId> drafts) override {
    const auto bad = std::ranges::find_if(drafts, [this](TokenId token) { return token >= limit; });
    return static_cast<std::uint32_t>(bad - drafts.begin());
  }
  bool fork(RequestId parent, RequestId child, std::uint32_t num_outputs) override {
    log.push_back(fmt::format("fork {} {} at {}", parent.value, child.value, num_outputs));
    return !not_forking.contains(parent);
  }
};

}  // namespace quire::test
