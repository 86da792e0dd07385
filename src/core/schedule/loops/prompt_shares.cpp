#include "core/schedule/loops/prompt_shares.h"

#include <algorithm>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

// Maximum number of prompts of a tenant that divide its share, in the order of the loops. If all prompts divided it, each would end late.
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
  // With mamba_align, a chunk may have to be a whole block. Other chunks are longer than a decode with its draft tokens.
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

// Counts no requests that wait for a grammar, a load or an input, and no requests without a row. Counts background requests last, because
// they get rows last.
bool PromptShares::count_waiting() {
  bool has_decodes = false, has_background = false;
  std::size_t num_rows = num_free_rows(context_, queues_);
  if (num_rows == 0 && !tenants_.is_on()) return false;
  bool counts_background = false;
  const auto count_one = [&](const Request& request) {
    const bool is_background = context_.config.scheduler.tenant_turns && request.tags.is_background;
    has_background |= is_background;
    if (is_background != counts_background || is_blocked(request)) return;
    const std::int64_t wanted = num_wanted(request);
    if (num_rows > 0)
      --num_rows;
    else if (!tenants_.may_take_row(request) || find(request) != nullptr)
      return;
    has_decodes |= wanted <= num_decoded();
    if (is_prompt(request, wanted)) count(request, wanted);
  };
  const auto count_all = [&] {
    queues_.skipped_waiting.for_each(count_one);
    queues_.waiting.for_each(count_one);
  };
  count_all();
  counts_background = true;
  if (has_background) count_all();
  return has_decodes;
}

void PromptShares::count(const Request& request, std::int64_t wanted) {
  auto share = std::ranges::find_if(shares_, [&](const Share& each) { return is_of(request, each); });
  const std::int64_t context = request.num_computed_tokens;
  if (share == shares_.end())
    share = shares_.insert(shares_.end(), {.tenant = request.tags.tenant,
                                           .is_background = request.tags.is_background,
                                           .order = shares_.size(),
                                           .least = cost_.of(least_tokens_, context)});
  longest_context_ = std::max(longest_context_, context);
  ++share->num_prompts;
  share->wanted += cost_.of(wanted, context);
  const StepId last = request.in_flight.last_step;
  if (last != kNeverScheduled) share->last_step = std::max(share->last_step, last.value + 1);
}

void PromptShares::divide() {
  std::ranges::sort(shares_, {}, [](const Share& share) { return std::tuple(share.is_background, share.last_step, share.order); });
  std::int64_t reserved = 0;
  std::size_t num_served = 0;
  for (; num_served < shares_.size() && (num_served == 0 || reserved + shares_[num_served].least <= left_over_); ++num_served)
    reserved += shares_[num_served].least;
  shares_.resize(num_served);
  left_over_ = std::max(left_over_, reserved);

  std::ranges::sort(shares_, {}, [](const Share& share) { return std::tuple(share.is_background, share.wanted, share.order); });
  const auto num_others = static_cast<std::size_t>(std::ranges::count(shares_, false, &Share::is_background));
  for (std::size_t i = 0; i < shares_.size(); ++i) {
    Share& share = shares_[i];
    const auto num_left = static_cast<std::int64_t>((share.is_background ? shares_.size() : num_others) - i);
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
  const auto share = std::ranges::find_if(shares_, [&](const Share& each) { return is_of(request, each); });
  if (share != shares_.end()) {
    const std::int64_t taken = std::min(cost, share->left);
    share->left -= taken;
    cost -= taken;
  }
  left_over_ = std::max<std::int64_t>(left_over_ - cost, 0);
}

bool PromptShares::is_of(const Request& request, const Share& share) const {
  return !context_.config.scheduler.tenant_turns ||
         (request.tags.is_background == share.is_background && request.tags.tenant == share.tenant);
}

const PromptShares::Share* PromptShares::find(const Request& request) const {
  const auto share = std::ranges::find_if(shares_, [&](const Share& each) { return is_of(request, each); });
  return share == shares_.end() ? nullptr : &*share;
}

}  // namespace quire
