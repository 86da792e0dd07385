#include "core/schedule/loops/prompt_shares.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

// The number of prompts of a tenant that share its tokens, in the order of the loops. If all did, each would end late.
constexpr std::uint32_t kMostSharing = 4;

constexpr std::uint32_t kMostTokens = 1U << 30U;  // of a step, so that costs do not overflow

std::int64_t num_wanted(const Request& request) {
  return std::int64_t{request.num_tokens_with_drafts()} + request.num_output_placeholders - request.num_computed_tokens;
}

}  // namespace

void PromptShares::begin_step(const PrefillLimits& limits, bool may_admit) {
  is_on_ = false;
  if (limits == PrefillLimits{} || !context_.config.scheduler.enable_chunked_prefill) return;
  shares_.clear();
  first_ = nullptr;
  longest_context_ = 0;
  cost_ = PromptCost(limits.context_of_double_cost);
  // A chunk of a model with mamba layers may have to be a whole block. Other chunks are longer than a decode with its draft tokens.
  least_tokens_ = context_.config.mamba_align ? static_cast<std::int32_t>(context_.config.cache_block_size) : num_decoded() + 1;
  bool has_decodes = count_running();
  if (may_admit) has_decodes |= count_waiting();
  const std::uint32_t limit = has_decodes ? limits.beside_decodes : limits.without_decodes;
  if (limit == 0) return;
  is_on_ = true;
  const std::uint32_t most_tokens = std::min(context_.config.scheduler.max_num_batched_tokens, kMostTokens);
  left_over_ = std::max(std::min<std::int64_t>(limit, cost_.of(most_tokens, longest_context_)), cost_.of(least_tokens_, 0));
  divide();
}

bool PromptShares::count_running() {
  bool has_decodes = false;
  for (const Request* request : queues_.running) {
    const std::int64_t wanted = num_wanted(*request);
    has_decodes |= wanted <= num_decoded();
    if (!is_prompt(*request, wanted)) continue;
    if (first_ == nullptr) first_ = request;
    count(*request, wanted);
  }
  return has_decodes;
}

// Requests that wait for a grammar, a load or an input take no tokens, nor do those for which there is no row.
bool PromptShares::count_waiting() {
  bool has_decodes = false;
  std::size_t num_rows = num_free_rows(context_, queues_);
  if (num_rows == 0 && !tenants_.is_on()) return false;
  const auto count_one = [&](const Request& request) {
    const std::int64_t wanted = num_wanted(request);
    if (is_blocked(request)) return;
    if (num_rows > 0)
      --num_rows;
    else if (!tenants_.may_take_row(request) || find(request) != nullptr)
      return;
    has_decodes |= wanted <= num_decoded();
    if (is_prompt(request, wanted)) count(request, wanted);
  };
  queues_.skipped_waiting.for_each(count_one);
  queues_.waiting.for_each(count_one);
  return has_decodes;
}

void PromptShares::count(const Request& request, std::int64_t wanted) {
  const std::string_view tenant = tenant_of(request);
  auto share = std::ranges::find(shares_, tenant, &Share::tenant);
  const std::int64_t context = request.num_computed_tokens;
  if (share == shares_.end())
    share = shares_.insert(shares_.end(), {.tenant = tenant, .order = shares_.size(), .least = cost_.of(least_tokens_, context)});
  longest_context_ = std::max(longest_context_, context);
  ++share->num_prompts;
  share->wanted += cost_.of(wanted, context);
  const StepId last = request.in_flight.last_step;
  if (last != kNeverScheduled) share->last_step = std::max(share->last_step, last.value + 1);
}

void PromptShares::divide() {
  std::ranges::sort(shares_, {}, [](const Share& share) { return std::pair(share.last_step, share.order); });
  std::int64_t reserved = 0;
  std::size_t num_served = 0;
  for (; num_served < shares_.size() && (num_served == 0 || reserved + shares_[num_served].least <= left_over_); ++num_served)
    reserved += shares_[num_served].least;
  shares_.resize(num_served);
  left_over_ = std::max(left_over_, reserved);

  std::ranges::sort(shares_, {}, [](const Share& share) { return std::pair(share.wanted, share.order); });
  for (std::size_t i = 0; i < shares_.size(); ++i) {
    Share& share = shares_[i];
    const auto num_left = static_cast<std::int64_t>(shares_.size() - i);
    reserved -= share.least;
    const std::int64_t fair = std::max((left_over_ + num_left - 1) / num_left, share.least);
    share.left = std::min({share.wanted, fair, left_over_ - reserved});
    share.per_prompt = std::max(share.left / std::min(share.num_prompts, kMostSharing), share.least);
    left_over_ -= share.left;
  }
  QUIRE_CHECK(left_over_ >= 0, "shares do not exceed the limit");
}

std::int32_t PromptShares::cap(const Request& request, std::int32_t num_computed_tokens, std::int32_t wanted) const {
  if (!is_on_ || !is_prompt(request, wanted)) return wanted;
  const Share* share = find(request);
  const std::int64_t cost = left_over_ + (share == nullptr ? 0 : std::min(share->left, share->per_prompt));
  auto granted = static_cast<std::int32_t>(cost_.tokens_within(cost, num_computed_tokens, wanted));
  if (&request == first_) granted = std::max(granted, std::min(least_tokens_, wanted));
  // A smaller chunk would pass for a decode.
  return granted > num_decoded() ? granted : 0;
}

void PromptShares::note_tokens(const Request& request, std::int32_t num_tokens) {
  if (!is_on_ || !is_prompt(request, std::abs(num_tokens))) return;
  std::int64_t cost = cost_.of(std::abs(num_tokens), request.num_computed_tokens) * (num_tokens < 0 ? -1 : 1);
  const auto share = std::ranges::find(shares_, tenant_of(request), &Share::tenant);
  if (share != shares_.end()) {
    const std::int64_t taken = std::min(cost, share->left);
    share->left -= taken;
    cost -= taken;
  }
  left_over_ = std::max<std::int64_t>(left_over_ - cost, 0);
}

std::string_view PromptShares::tenant_of(const Request& request) const {
  return context_.config.scheduler.tenant_turns ? std::string_view(request.tags.tenant) : std::string_view();
}

const PromptShares::Share* PromptShares::find(const Request& request) const {
  const auto share = std::ranges::find(shares_, tenant_of(request), &Share::tenant);
  return share == shares_.end() ? nullptr : &*share;
}

}  // namespace quire
