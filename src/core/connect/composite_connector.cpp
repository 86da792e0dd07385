// Several connectors behind one seam. The core calls it on its thread, in the middle of a step; it hands each call to its members in order
// and joins the answers. It decides nothing but from whom a request loads. Members know nothing of each other, so each has a tier of its
// own: places of two members may have equal numbers.
#include "core/connect/composite_connector.h"

#include <algorithm>

namespace quire {

// What one member adds to a plan.
class CompositeConnector::MembersTransfers final : public TransferList {
 public:
  MembersTransfers(CompositeConnector& composite, std::size_t member, TransferList& transfers)
      : composite_(composite), member_(member), transfers_(transfers) {}
  std::optional<TransferId> add(const Transfer& transfer) override {
    Transfer marked = transfer;
    marked.tier = composite_.members_[member_].tier.value_or(transfer.tier);
    const std::optional<TransferId> id = transfers_.add(marked);
    if (id) composite_.owners_.emplace(id->value, member_);
    return id;
  }

 private:
  CompositeConnector& composite_;
  std::size_t member_;
  TransferList& transfers_;
};

void CompositeConnector::bind(const Core& core) {
  for (const CompositeMember& member : members_) member.connector->bind(core);
}

bool CompositeConnector::supports_groups() const {
  return std::ranges::all_of(members_, [](const CompositeMember& member) { return member.connector->supports_groups(); });
}

bool CompositeConnector::is_better(const ExternalMatch& match, const ExternalMatch& best) const {
  const std::uint32_t now = match.num_tokens.value_or(0), until_now = best.num_tokens.value_or(0);
  return choice_ == CompositeChoice::first ? until_now == 0 && now > 0 : now > until_now;
}

ExternalMatch CompositeConnector::match(const RequestView& request, std::uint32_t num_local_tokens) {
  ExternalMatch best{.num_tokens = 0, .load_async = false};
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const ExternalMatch match = members_[i].connector->match(request, num_local_tokens);
    if (!match.num_tokens) return {.num_tokens = std::nullopt, .load_async = false};
    if (!is_better(match, best)) continue;
    chosen_[request.id.value] = i;
    best = match;
  }
  return best;
}

void CompositeConnector::allocated(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens) {
  // The others are told of the request without blocks: they must not store what is about to be loaded into these.
  no_blocks_.resize(blocks.size());
  const auto found = chosen_.find(request.id.value);
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const bool is_chosen = found != chosen_.end() && found->second == i;
    members_[i].connector->allocated(request, is_chosen ? blocks : GroupBlocks(no_blocks_), is_chosen ? num_external_tokens : 0);
  }
}

bool CompositeConnector::finished(const RequestView& request, GroupBlocks blocks) {
  bool keeps = false;
  for (const CompositeMember& member : members_) keeps |= member.connector->finished(request, blocks);
  chosen_.erase(request.id.value);
  return keeps;
}

void CompositeConnector::planned(const StepPlan& plan) {
  for (const CompositeMember& member : members_) member.connector->planned(plan);
}

void CompositeConnector::plan_transfers(const StepPlan& plan, TransferList& transfers) {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    MembersTransfers list(*this, i, transfers);
    members_[i].connector->plan_transfers(plan, list);
  }
}

void CompositeConnector::completed(const TransferCompletion& completion) {
  const auto found = owners_.find(completion.transfer.value);
  if (found == owners_.end()) return;
  const std::size_t member = found->second;
  owners_.erase(found);
  members_[member].connector->completed(completion);
}

void CompositeConnector::order_failed(std::size_t num_async, std::span<RequestId> finishing, std::span<RequestId> reported) {
  for (const CompositeMember& member : members_) member.connector->order_failed(num_async, finishing, reported);
}

void CompositeConnector::sent(RequestId request) {
  for (const CompositeMember& member : members_) member.connector->sent(request);
}

void CompositeConnector::step_output() {
  for (const CompositeMember& member : members_) member.connector->step_output();
}

bool CompositeConnector::reset() {
  bool all = true;
  for (const CompositeMember& member : members_) all &= member.connector->reset();
  return all;
}

}  // namespace quire
