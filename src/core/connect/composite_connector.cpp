// Combines several connectors into one. Called on the core's thread, during a step. The connector passes each call to its members in order
// and combines their answers; its only decision is from which member a request loads. The members do not know each other, so each has a
// separate tier, and slots of two members may have equal numbers.
#include "core/connect/composite_connector.h"

#include <algorithm>

#include "base/check.h"

namespace quire {
namespace {

std::uint32_t num_tokens_of(const std::vector<TierMatch>& matches) {
  std::uint32_t sum = 0;
  for (const TierMatch& match : matches) sum += match.num_tokens;
  return sum;
}

}  // namespace

// Receives the transfers that one member adds to a plan.
class CompositeConnector::MemberTransferList final : public TransferList {
 public:
  MemberTransferList(CompositeConnector& composite, std::size_t member, TransferList& transfers)
      : composite_(composite), member_(member), transfers_(transfers) {}
  std::optional<TransferId> add(const Transfer& transfer) override {
    QUIRE_CHECK(member_ < composite_.members_.size(), "the member belongs to this connector");
    Transfer marked = transfer;
    marked.tier = composite_.members_[member_].tier.value_or(transfer.tier);
    const std::optional<TransferId> id = transfers_.add(marked);
    const bool is_new = !id || composite_.owners_.emplace(id->value, member_).second;
    QUIRE_CHECK(is_new, "a transfer has one owner");
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

bool CompositeConnector::supports_states() const {
  return std::ranges::all_of(members_, [](const CompositeMember& member) { return member.connector->supports_states(); });
}

bool CompositeConnector::is_better(std::uint32_t num_tokens, std::uint32_t best) const {
  return choice_ == CompositeChoice::first ? best == 0 && num_tokens > 0 : num_tokens > best;
}

ExternalMatch CompositeConnector::match(const RequestView& request, std::uint32_t num_local_tokens) {
  if (choice_ == CompositeChoice::stacked) return match_stacked(request, num_local_tokens);
  ExternalMatch best{.num_tokens = 0, .load_async = false};
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const ExternalMatch match = members_[i].connector->match(request, num_local_tokens);
    if (!match.num_tokens) return {.num_tokens = std::nullopt, .load_async = false};
    if (!is_better(*match.num_tokens, *best.num_tokens)) continue;
    QUIRE_CHECK(*match.num_tokens > 0, "the chosen member matches at least one token");
    chosen_[request.id.value] = i;
    best = match;
  }
  return best;
}

bool CompositeConnector::peek_at(const CompositeMember& member, const RequestView& request, std::uint32_t num_local_tokens,
                                 std::vector<TierMatch>& matches) {
  if (!member.connector->peek(request, num_local_tokens, matches)) return false;
  std::erase_if(matches, [](const TierMatch& match) { return match.num_tokens == 0; });
  for (TierMatch& match : matches) match.tier = member.tier.value_or(match.tier);
  return true;
}

bool CompositeConnector::peek(const RequestView& request, std::uint32_t num_local_tokens, std::vector<TierMatch>& matches) {
  if (choice_ == CompositeChoice::stacked) return peek_stacked(request, num_local_tokens, matches);
  std::uint32_t best = 0;
  std::vector<TierMatch> found, of_best;
  for (const CompositeMember& member : members_) {
    found.clear();
    if (!peek_at(member, request, num_local_tokens, found)) return false;
    const std::uint32_t num_tokens = num_tokens_of(found);
    if (!is_better(num_tokens, best)) continue;
    best = num_tokens;
    of_best.swap(found);
  }
  matches.insert(matches.end(), of_best.begin(), of_best.end());
  return true;
}

bool CompositeConnector::peek_stacked(const RequestView& request, std::uint32_t num_local_tokens, std::vector<TierMatch>& matches) {
  std::vector<TierMatch> found;
  std::vector<bool> is_taken(members_.size());
  std::uint32_t num_tokens = 0;
  std::optional<bool> load_async;
  for (bool has_grown = true; has_grown;) {
    has_grown = false;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (is_taken[i]) continue;
      found.clear();
      if (!peek_at(members_[i], request, num_local_tokens + num_tokens, found)) return false;
      if (found.empty() || found.front().load_async != load_async.value_or(found.front().load_async)) continue;
      load_async = found.front().load_async;
      num_tokens += num_tokens_of(found);
      matches.insert(matches.end(), found.begin(), found.end());
      is_taken[i] = has_grown = true;
    }
  }
  return true;
}

// Members are asked again until no member adds a part, because a member without a match may have the tokens after another member's part.
ExternalMatch CompositeConnector::match_stacked(const RequestView& request, std::uint32_t num_local_tokens) {
  std::vector<Part> parts;
  ExternalMatch all{.num_tokens = 0, .load_async = false};
  const auto has_part = [&](std::size_t i) { return std::ranges::find(parts, i, &Part::member) != parts.end(); };
  for (bool has_grown = true; has_grown;) {
    has_grown = false;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (has_part(i)) continue;
      const ExternalMatch match = members_[i].connector->match(request, num_local_tokens + *all.num_tokens);
      if (!match.num_tokens) return {.num_tokens = std::nullopt, .load_async = false};
      if (*match.num_tokens == 0 || (!parts.empty() && match.load_async != all.load_async)) continue;
      parts.push_back({.member = i, .num_tokens = *match.num_tokens});
      all = {.num_tokens = *all.num_tokens + *match.num_tokens, .load_async = match.load_async};
      has_grown = true;
    }
  }
  QUIRE_CHECK(parts.size() <= members_.size(), "each member contributes at most one part");
  if (!parts.empty()) parts_[request.id.value] = std::move(parts);
  return all;
}

void CompositeConnector::allocated_stacked(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens) {
  const auto found = parts_.find(request.id.value);
  for (std::size_t i = 0; i < members_.size(); ++i) {
    std::uint32_t num_tokens = 0, num_left = num_external_tokens;
    for (const Part& part : found == parts_.end() ? std::span<const Part>() : std::span<const Part>(found->second)) {
      if (part.member == i) num_tokens = std::min(part.num_tokens, num_left);
      num_left -= std::min(part.num_tokens, num_left);
    }
    members_[i].connector->allocated(request, num_tokens > 0 ? blocks : GroupBlocks(no_blocks_), num_tokens);
  }
}

void CompositeConnector::allocated(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens) {
  // The other members get the request without blocks, because they must not store blocks that are about to be loaded.
  no_blocks_.resize(blocks.size());
  if (choice_ == CompositeChoice::stacked) return allocated_stacked(request, blocks, num_external_tokens);
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
  parts_.erase(request.id.value);
  return keeps;
}

void CompositeConnector::planned(const StepPlan& plan) {
  for (const CompositeMember& member : members_) member.connector->planned(plan);
}

void CompositeConnector::plan_transfers(const StepPlan& plan, TransferList& transfers) {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    MemberTransferList list(*this, i, transfers);
    members_[i].connector->plan_transfers(plan, list);
  }
}

void CompositeConnector::completed(const TransferCompletion& completion) {
  const auto found = owners_.find(completion.transfer.value);
  if (found == owners_.end()) return;
  const std::size_t member = found->second;
  owners_.erase(found);
  QUIRE_CHECK(member < members_.size(), "a completed transfer belongs to a member");
  members_[member].connector->completed(completion);
}

void CompositeConnector::order_failed(std::size_t num_async, std::span<RequestId> finishing, std::span<RequestId> reported) {
  QUIRE_CHECK(num_async <= finishing.size(), "requests that waited for their load are among the failed requests");
  for (const CompositeMember& member : members_) member.connector->order_failed(num_async, finishing, reported);
}

void CompositeConnector::forget_blocks(const RequestView& request) {
  for (const CompositeMember& member : members_) member.connector->forget_blocks(request);
}

void CompositeConnector::invalidated(const RequestView& request, std::uint32_t num_valid_tokens) {
  for (const CompositeMember& member : members_) member.connector->invalidated(request, num_valid_tokens);
}

void CompositeConnector::sent(RequestId request) {
  for (const CompositeMember& member : members_) member.connector->sent(request);
}

void CompositeConnector::step_output() {
  for (const CompositeMember& member : members_) member.connector->step_output();
}

void CompositeConnector::check_invariants() const {
  for (const auto& [id, member] : chosen_) QUIRE_CHECK(member < members_.size(), "the chosen connector is a member");
  for (const auto& [id, member] : owners_) QUIRE_CHECK(member < members_.size(), "the owner of a transfer is a member");
  for (const auto& [id, parts] : parts_) {
    QUIRE_CHECK(!parts.empty(), "a remembered request has at least one part");
    std::vector<bool> is_taken(members_.size());
    for (const Part& part : parts) {
      QUIRE_CHECK(part.member < members_.size() && part.num_tokens > 0 && !is_taken[part.member],
                  "each member has at most one part, and a part has tokens");
      is_taken[part.member] = true;
    }
  }
}

bool CompositeConnector::reset() {
  bool all = true;
  for (const CompositeMember& member : members_) all &= member.connector->reset();
  return all;
}

}  // namespace quire
