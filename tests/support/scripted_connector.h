#pragma once
// Test doubles of the core's interfaces. A test sets their answers, and they record the calls.
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "quire/base/events.h"
#include "quire/base/plan.h"
#include "quire/connector.h"

namespace quire::test {

// Returns a transfer of blocks that refers to `blocks`. Each block uses slot 0 of the tier.
inline Transfer transfer_of(RequestId request, std::span<const BlockId> blocks, TransferDirection direction = TransferDirection::load,
                            TransferNeed need = TransferNeed::nothing, std::uint32_t group = 0) {
  static constexpr std::uint64_t kSlots[256] = {};
  return {.id = {},
          .request = request,
          .direction = direction,
          .need = need,
          .group = group,
          .blocks = blocks,
          .places = std::span(kSlots).first(blocks.size())};
}

// Loads nothing and keeps nothing. It is the base of test doubles that answer a few calls differently.
class QuietConnector : public Connector {
 public:
  ExternalMatch match(const RequestView& /*request*/, std::uint32_t /*num_local_tokens*/) override { return {.num_tokens = 0}; }
  void allocated(const RequestView& /*request*/, GroupBlocks /*blocks*/, std::uint32_t /*num_external_tokens*/) override {}
  bool finished(const RequestView& /*request*/, GroupBlocks /*blocks*/) override { return false; }
  void planned(const StepPlan& /*plan*/) override {}
  void step_output() override {}
  bool reset() override { return true; }
};

class ScriptedConnector : public Connector {
 public:
  // The answers.
  std::map<RequestId, ExternalMatch> matches;
  ExternalMatch answer{.num_tokens = 0, .load_async = false};  // for requests that are not in `matches`
  std::optional<std::vector<TierMatch>> found;                 // answer of peek(); nullopt means unknown
  std::set<RequestId> keeps_blocks;                            // requests whose blocks it keeps when they finish
  bool keeps_all = false, resets = true, has_states = false;
  bool reverses_failed = false;     // failed loads finish in the reverse of the scan's order
  std::vector<Transfer> transfers;  // transfers for the next plan

  // The calls in order. `log` has all calls, e.g. "finished 7 status=8 blocks=[1 2]".
  std::vector<std::string> log;
  std::vector<std::uint64_t> asked, sent_requests;     // requests of match() or peek()
  std::uint32_t local = 0;                             // local tokens of the newest match() or peek()
  std::pair<std::size_t, std::uint32_t> allocation{};  // newest allocation: blocks of the first group, external tokens
  std::vector<std::optional<TransferId>> ids;          // ids of `transfers`
  std::vector<TransferId> over;
  std::map<RequestId, std::uint32_t> invalidated_after;  // valid tokens per request
  std::vector<std::uint32_t> num_computed_at_end;

  [[nodiscard]] std::vector<std::string> take_log() { return std::exchange(log, {}); }
  [[nodiscard]] std::size_t num_logged(std::string_view call) const {
    return static_cast<std::size_t>(std::ranges::count_if(log, [&](const std::string& line) { return line.starts_with(call); }));
  }

  [[nodiscard]] bool supports_states() const override { return has_states; }
  ExternalMatch match(const RequestView& request, std::uint32_t num_local_tokens) override {
    log.push_back(fmt::format("match {} local={}", request.id.value, num_local_tokens));
    note_question(request, num_local_tokens);
    const auto known = matches.find(request.id);
    return known == matches.end() ? answer : known->second;
  }
  bool peek(const RequestView& request, std::uint32_t num_local_tokens, std::vector<TierMatch>& there) override {
    note_question(request, num_local_tokens);
    if (found) there.insert(there.end(), found->begin(), found->end());
    return found.has_value();
  }
  void allocated(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens) override {
    log.push_back(fmt::format("allocated {} blocks={} external={}", request.id.value, text(blocks), num_external_tokens));
    allocation = {blocks.empty() ? 0 : blocks[0].size(), num_external_tokens};
  }
  bool finished(const RequestView& request, GroupBlocks blocks) override {
    log.push_back(fmt::format("finished {} status={} blocks={}", request.id.value, static_cast<int>(request.status), text(blocks)));
    num_computed_at_end.push_back(request.num_computed_tokens);
    return keeps_all || keeps_blocks.contains(request.id);
  }
  void planned(const StepPlan& plan) override { log.push_back(fmt::format("planned {}", plan.num_scheduled_tokens)); }
  void plan_transfers(const StepPlan& /*plan*/, TransferList& list) override {
    for (const Transfer& transfer : std::exchange(transfers, {})) ids.push_back(list.add(transfer));
  }
  void completed(const TransferCompletion& completion) override { over.push_back(completion.transfer); }
  void sent(RequestId request) override { sent_requests.push_back(request.value); }
  void invalidated(const RequestView& request, std::uint32_t num_valid_tokens) override {
    invalidated_after[request.id] = num_valid_tokens;
  }
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
  void note_question(const RequestView& request, std::uint32_t num_local_tokens) {
    asked.push_back(request.id.value);
    local = num_local_tokens;
  }
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

// Accepts tokens below `limit`. It is ready and advances for all requests unless the test sets otherwise.
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

// Records the events of some kinds in order.
class EventLog final : public EventSink {
 public:
  EventLog(std::initializer_list<EventKind> kinds) : kinds_(kinds) {}
  void on_event(const Event& event) override {
    if (kinds_.contains(event.what)) all.push_back(event);
  }
  [[nodiscard]] std::vector<Event> of(const std::set<EventKind>& kinds) const {
    std::vector<Event> events;
    std::ranges::copy_if(all, std::back_inserter(events), [&kinds](const Event& event) { return kinds.contains(event.what); });
    return events;
  }

  std::vector<Event> all;

 private:
  std::set<EventKind> kinds_;
};

}  // namespace quire::test
