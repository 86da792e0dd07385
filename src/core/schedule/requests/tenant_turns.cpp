#include "core/schedule/requests/tenant_turns.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

std::int64_t num_wanted(const Request& request) {
  return std::max<std::int64_t>(
      0, std::int64_t{request.num_tokens_with_drafts()} + request.num_output_placeholders - request.num_computed_tokens);
}

}  // namespace

void TenantScheduler::begin_step() {
  num_shares_ = 0;
  if (!context_.config.scheduler.tenant_turns) return;
  for (const Request* request : queues_.running) {
    Share& share = share_of(*request);
    ++share.num_rows;
    share.wanted += num_wanted(*request);
  }
  const auto count = [this](const Request& request) {
    if (!is_blocked(request)) share_of(request).wanted += num_wanted(request);
  };
  queues_.skipped_waiting.for_each(count);
  queues_.waiting.for_each(count);
  if (is_on()) distribute_tokens();
}

// Computes max-min fair shares: first serves the tenants that want the fewest tokens. No tenant gets more than it wants. Background
// requests divide what the others leave.
void TenantScheduler::distribute_tokens() {
  by_wanted_.clear();
  for (std::size_t i = 0; i < num_shares_; ++i) by_wanted_.push_back(&shares_[i]);
  std::ranges::sort(by_wanted_, {}, [](const Share* share) { return std::pair(share->is_background, share->wanted); });
  const auto num_others = static_cast<std::size_t>(std::ranges::count(by_wanted_, false, &Share::is_background));
  std::int64_t left = context_.config.scheduler.max_num_batched_tokens;
  for (std::size_t i = 0; i < by_wanted_.size(); ++i) {
    Share& share = *by_wanted_[i];
    const auto num_left = static_cast<std::int64_t>((share.is_background ? by_wanted_.size() : num_others) - i);
    share.tokens_left = std::min(share.wanted, (left + num_left - 1) / num_left);
    left -= share.tokens_left;
  }
}

std::int32_t TenantScheduler::cap_at_share(const Request& request, std::int32_t wanted) const {
  const auto num_decoded = static_cast<std::int32_t>(1 + context_.config.speculation.num_spec_tokens);
  const bool may_be_cut = context_.config.scheduler.enable_chunked_prefill && !context_.config.mamba_align && !request.has_encoder_inputs();
  if (!is_on() || !may_be_cut || wanted <= num_decoded) return wanted;
  const Share* share = find(request);
  if (share == nullptr) return wanted;
  // With fewer tokens than tenants, some shares are 0. The request at the front gets at least one token, because only running requests free
  // the blocks for which other requests wait.
  const std::int64_t least = !queues_.running.empty() && queues_.running.front() == &request ? 1 : 0;
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(share->tokens_left, least, wanted));
}

void TenantScheduler::note_tokens(const Request& request, std::int32_t num_tokens) {
  if (is_on()) share_of(request).tokens_left -= num_tokens;
}

void TenantScheduler::begin_admissions() {
  QUIRE_CHECK(is_on(), "tenant turns are on");
  queues_.next_waiting(queues_.num_waiting(), waiting_);
  for (std::size_t i = 0; i < num_shares_; ++i) {
    shares_[i].waiting.clear();
    shares_[i].next = 0;
  }
  for (Request* request : waiting_) share_of(*request).waiting.push_back(request);
}

Request* TenantScheduler::next() {
  Share* poorest = nullptr;
  const auto goes_first = [](const Share& a, const Share& b) {
    if (a.is_background != b.is_background) return b.is_background;
    if (a.num_rows != b.num_rows) return a.num_rows < b.num_rows;
    const Request &first = *a.waiting[a.next], &second = *b.waiting[b.next];
    return first.arrival_time != second.arrival_time ? first.arrival_time < second.arrival_time : first.id < second.id;
  };
  for (std::size_t i = 0; i < num_shares_; ++i)
    if (shares_[i].next < shares_[i].waiting.size() && (poorest == nullptr || goes_first(shares_[i], *poorest))) poorest = &shares_[i];
  return poorest == nullptr ? nullptr : poorest->waiting[poorest->next];
}

void TenantScheduler::pass(const Request& request, bool was_admitted) {
  Share& share = share_of(request);
  QUIRE_CHECK(share.next < share.waiting.size() && share.waiting[share.next] == &request, "the passed request is the next of its tenant");
  ++share.next;
  share.num_rows += was_admitted ? 1 : 0;
}

void TenantScheduler::end_turn(const Request& request) {
  Share& share = share_of(request);
  share.next = share.waiting.size();
}

const TenantScheduler::Share* TenantScheduler::largest_share() const {
  const auto end = shares_.begin() + static_cast<std::ptrdiff_t>(num_shares_);
  const auto most = std::max_element(shares_.begin(), end, [](const Share& a, const Share& b) {
    return std::pair(a.is_background && a.num_rows > 0, a.num_rows) < std::pair(b.is_background && b.num_rows > 0, b.num_rows);
  });
  return most == end ? nullptr : &*most;
}

std::vector<Request*>::iterator TenantScheduler::find_victim_of_largest_share(std::vector<Request*>& running) const {
  if (!is_on()) return running.end();
  const Share& most = *largest_share();
  const std::span shares(shares_.data(), num_shares_);
  const auto can_preempt = [](const Request&) { return true; };
  if (std::ranges::any_of(shares, [&](const Share& share) { return share.num_rows > 0 && yields(most, share); }))
    return last_of(running, most, true, can_preempt);
  if (std::ranges::count(shares, most.num_rows, &Share::num_rows) > 1) return running.end();
  return last_of(running, most, false, can_preempt);
}

bool TenantScheduler::outranks(const Request& a, const Request& b) const {
  const auto is_pinned = [](const Request& request) { return request.job != nullptr && request.job->is_pinned; };
  switch (context_.config.scheduler.policy) {
    case SchedulingPolicy::fcfs:
      break;
    case SchedulingPolicy::priority:
      return a.priority != b.priority ? a.priority < b.priority : a.arrival_time < b.arrival_time;
    case SchedulingPolicy::continuum:
      return is_pinned(a) && !is_pinned(b);
  }
  return false;
}

void TenantScheduler::note_preempted(const Request& victim) {
  if (!is_on()) return;
  Share& share = share_of(victim);
  QUIRE_CHECK(share.num_rows > 0, "a preempted request had a row of the batch");
  --share.num_rows;
}

TenantScheduler::Share& TenantScheduler::share_of(const Request& request) {
  for (std::size_t i = 0; i < num_shares_; ++i)
    if (is_of(request, shares_[i])) return shares_[i];
  if (num_shares_ == shares_.size()) shares_.emplace_back();
  Share& share = shares_[num_shares_++];
  share.tenant = request.tags.tenant;
  share.is_background = request.tags.is_background;
  share.num_rows = 0;
  share.wanted = share.tokens_left = 0;
  share.waiting.clear();
  share.next = 0;
  return share;
}

const TenantScheduler::Share* TenantScheduler::find(const Request& request) const {
  for (std::size_t i = 0; i < num_shares_; ++i)
    if (is_of(request, shares_[i])) return &shares_[i];
  return nullptr;
}

}  // namespace quire
