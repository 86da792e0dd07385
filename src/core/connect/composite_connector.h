#pragma once
// Several connectors as one. All are told of everything and all store; a request loads from one of them. The rules are those of vLLM's
// MultiConnector (v0.19.0):
//   match        all are asked in order; one that does not know yet ends the question. The first that has tokens is chosen, until another
//                question chooses again or the request ends
//   allocated    the chosen one sees the blocks and the external tokens, the others no blocks and none
//   finished     blocks are kept where any of them keeps them
//   spoiled, sent, step_output, reset    all; a reset is done where all have done it
// A transfer's end is told to the one that asked for it. The core keeps a finished request's blocks until all its transfers are over,
// whoever asked for them: that is vLLM's count of further saves.
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
  // Transfer::tier of its transfers; nullopt: as it says itself.
  std::optional<std::uint32_t> tier = std::nullopt;
};

// From whom a request loads when several have something.
enum class CompositeChoice : std::uint8_t {
  first,    // as vLLM: the first, however little it has
  longest,  // the one with the most tokens, of those with as many the first
  // The first that has something, then one that has what comes behind it, and so on, each at most once: for tiers among which the blocks
  // of a prompt are spread. All must load in one way (ExternalMatch::load_async).
  stacked
};

// One thread, the core's. It keeps no blocks and moves nothing; what it remembers of a request goes with finished(), of a transfer with
// completed().
class CompositeConnector final : public Connector {
 public:
  explicit CompositeConnector(std::vector<CompositeMember> members, CompositeChoice choice = CompositeChoice::first)
      : members_(std::move(members)), choice_(choice) {
    for (const CompositeMember& member : members_) QUIRE_CHECK(member.connector != nullptr, "each member is there");
  }

  void bind(const Core& core) override;
  // Where all members do.
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
  void spoiled(const RequestView& request, std::uint32_t num_good_tokens) override;
  void sent(RequestId request) override;
  void step_output() override;
  bool reset() override;

  // Stops the program if it remembers a member that there is not, or one twice for a request.
  void check_invariants() const;
  // Requests and transfers of which it remembers something; none when all is over.
  [[nodiscard]] std::size_t num_tracked() const { return chosen_.size() + owners_.size() + parts_.size(); }

 private:
  class MembersTransfers;

  struct Part {
    std::size_t member;
    std::uint32_t num_tokens;
  };

  bool peek_stacked(const RequestView& request, std::uint32_t num_local_tokens, std::vector<TierMatch>& matches);
  // Of one member, under the tier that its transfers have.
  bool peek_at(const CompositeMember& member, const RequestView& request, std::uint32_t num_local_tokens, std::vector<TierMatch>& matches);
  ExternalMatch match_stacked(const RequestView& request, std::uint32_t num_local_tokens);
  void allocated_stacked(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens);
  // Whether so many tokens are loaded rather than the best so far.
  [[nodiscard]] bool is_better(std::uint32_t num_tokens, std::uint32_t best) const;

  std::vector<CompositeMember> members_;
  CompositeChoice choice_;
  std::unordered_map<std::uint64_t, std::size_t> chosen_;       // member, by request
  std::unordered_map<std::uint64_t, std::vector<Part>> parts_;  // stacked: in the order of the tokens, by request
  std::unordered_map<std::uint64_t, std::size_t> owners_;       // member, by open transfer
  std::vector<std::span<const BlockId>> no_blocks_;             // by group
};

}  // namespace quire
