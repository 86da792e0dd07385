#pragma once
// Combines several connectors into one. All of them get every call, and all store; a request loads from one of them. The rules are vLLM's
// MultiConnector (v0.19.0):
//   match        all members are asked in order; a member without an answer yet ends the query. The first member with tokens is
//                chosen, or with `longest` the one with the most, until another query chooses again or the request ends
//   allocated    the chosen member gets the blocks and the external tokens, the others no blocks and no tokens
//   finished     blocks are kept if any member keeps them
//   others       `invalidated`, `sent`, `step_output` and `reset`: all members get the call; reset() returns true if all members do
// The end of a transfer is reported to the member that requested it. The core keeps a finished request's blocks until all its transfers
// have ended, whichever member requested them. This corresponds to vLLM's count of extra asynchronous saves.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "quire/connector.h"

namespace quire {

struct CompositeMember {
  std::shared_ptr<Connector> connector;
  // Transfer::tier of the member's transfers; nullopt: the connector sets it.
  std::optional<std::uint32_t> tier = std::nullopt;
};

// From which member a request loads if several have a match.
enum class CompositeChoice : std::uint8_t {
  first,    // the first member with tokens, however few (vLLM)
  longest,  // the member with the most tokens; the first one if several have as many
  // The first member with tokens, then a member with tokens after these, and so on, each at most once. For tiers that divide the blocks of
  // a prompt among them. All parts must load in the same way (ExternalMatch::load_async).
  stacked
};

// Called on the core's thread. The connector holds no blocks and moves no data. finished() removes the records of a request; completed()
// removes the record of a transfer.
class CompositeConnector final : public Connector {
 public:
  explicit CompositeConnector(std::vector<CompositeMember> members, CompositeChoice choice = CompositeChoice::first)
      : members_(std::move(members)), choice_(choice) {
    for (const CompositeMember& member : members_) QUIRE_CHECK(member.connector != nullptr, "each member has a connector");
  }

  void bind(const Core& core) override;
  // Return whether all members support several cache groups, and whether all support states.
  [[nodiscard]] bool supports_groups() const override;
  [[nodiscard]] bool supports_states() const override;
  ExternalMatch match(const RequestView& request, std::uint32_t num_local_tokens) override;
  bool peek(const RequestView& request, std::uint32_t num_local_tokens, std::vector<TierMatch>& matches) override;
  void allocated(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens) override;
  bool finished(const RequestView& request, GroupBlocks blocks) override;
  void planned(const StepPlan& plan) override;
  void plan_transfers(const StepPlan& plan, TransferList& transfers) override;
  void completed(const TransferCompletion& completion) override;
  void order_failed(std::size_t num_async, std::span<RequestId> finishing, std::span<RequestId> reported) override;
  void forget_blocks(const RequestView& request) override;
  void invalidated(const RequestView& request, std::uint32_t num_valid_tokens) override;
  void sent(RequestId request) override;
  void step_output() override;
  bool reset() override;

  // Stops the program if a record refers to an unknown member, or if the records of a request refer to the same member twice.
  void check_invariants() const;
  // Returns the number of records of requests and transfers; 0 when all have ended.
  [[nodiscard]] std::size_t num_tracked() const { return chosen_.size() + owners_.size() + parts_.size(); }

 private:
  class MemberTransferList;

  struct Part {
    std::size_t member;
    std::uint32_t num_tokens;
  };

  bool peek_stacked(const RequestView& request, std::uint32_t num_local_tokens, std::vector<TierMatch>& matches);
  // Calls peek() of one member. Sets the tier of the matches to the tier of the member's transfers.
  bool peek_at(const CompositeMember& member, const RequestView& request, std::uint32_t num_local_tokens, std::vector<TierMatch>& matches);
  ExternalMatch match_stacked(const RequestView& request, std::uint32_t num_local_tokens);
  void allocated_stacked(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens);
  // Returns whether a match of `num_tokens` is preferred to the best match so far.
  [[nodiscard]] bool is_better(std::uint32_t num_tokens, std::uint32_t best) const;

  std::vector<CompositeMember> members_;
  CompositeChoice choice_;
  std::unordered_map<std::uint64_t, std::size_t> chosen_;       // member, by request
  std::unordered_map<std::uint64_t, std::vector<Part>> parts_;  // stacked: in the order of the tokens, by request
  std::unordered_map<std::uint64_t, std::size_t> owners_;       // member, by open transfer
  std::vector<std::span<const BlockId>> no_blocks_;             // by group, all empty
};

}  // namespace quire
