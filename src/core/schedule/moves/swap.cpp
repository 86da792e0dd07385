// Preemption by swap: what is stored, what comes back, what is given up (SwapOptions; the states are in swap.h). Called while a step is
// planned and when a result is taken, on the core's thread. Each of its transfers was promised room before (may_begin()), since a request
// that is half stored could neither run nor wait.
#include "core/schedule/moves/swap.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/rules.h"
#include "core/kv/cache_groups.h"

namespace quire {

Swap::Swap(Context& context, KvCacheManager& kv, OpenTransfers& open, Requests& requests, Queues& queues)
    : context_(context), kv_(kv), open_transfers_(open), requests_(requests), queues_(queues) {
  for (const KvCacheGroup& group : context.config.kv.groups) {
    group_bytes_.push_back(page_size_bytes(group) * (group.layer_specs.empty() ? group.layer_names.size() : 1));
    is_encoded_.push_back(std::holds_alternative<CrossAttentionSpec>(group.spec));
  }
  // The lowest on top: they are used first.
  for (std::uint32_t place = context.config.swap.num_swap_places; place > 0; --place) give_place(place - 1);
}

std::uint32_t Swap::take_place() {
  std::vector<std::uint32_t>& places = free_places_.empty() ? free_far_places_ : free_places_;
  QUIRE_CHECK(!places.empty(), "places were counted before they are taken");
  const std::uint32_t place = places.back();
  places.pop_back();
  return place;
}

bool Swap::take_out(Request& victim, bool was_planned) {
  if (!is_on() || !may_move(victim, was_planned)) return false;
  const std::uint32_t num_own = kv_.num_own_blocks(victim.blocks, static_cast<std::uint32_t>(victim.num_computed_tokens));
  if (num_own > num_free_places() || !may_begin()) return decline(victim, EventCause::no_place, context_.totals.num_swaps_no_place);
  if (!is_worth_it(victim)) return decline(victim, EventCause::no_gain, context_.totals.num_swaps_no_gain);
  QUIRE_CHECK(victim.swapped == nullptr, "a request is swapped out once at a time");
  SwappedBlocks& swapped = make(victim);
  kv_.take_out(victim.blocks, static_cast<std::uint32_t>(victim.num_computed_tokens), swapped.blocks);
  QUIRE_CHECK(swapped.blocks.size() <= num_free_places(), "places were counted before blocks were taken");
  for (std::size_t i = 0; i < swapped.blocks.size(); ++i) swapped.places.push_back(take_place());
  // What others hold too stays where it is: only blocks of its own move.
  swapped.stage = swapped.blocks.empty() ? SwappedBlocks::Stage::stored : SwappedBlocks::Stage::storing;
  if (!swapped.blocks.empty()) to_begin_.push_back(&swapped);
  ++context_.totals.num_swapped_out;
  context_.totals.num_swapped_out_blocks += swapped.blocks.size();
  tell(EventKind::swapped_out, EventCause::lack_of_blocks, victim, swapped.blocks.size());
  return true;
}

// A session may be cut while it waits. What pools more than its last row must see all rows in one go. The copy of a block that was planned
// in this step, and will not be made, holds nothing; nor does a block that a load still fills.
bool Swap::may_move(const Request& victim, bool was_planned) const {
  if (victim.num_computed_tokens <= 0 || victim.resumable || (victim.pooling && victim.skip_reading_prefix_cache)) return false;
  for (std::uint32_t group = 0; group < context_.num_groups; ++group) {
    if (was_planned && victim.blocks.own_copy(group)) return false;
    for (const BlockId block : victim.blocks.blocks(group))
      if (open_transfers_.is_being_loaded(block)) return false;
  }
  return true;
}

// What others hold too is not computed again either way, as long as they do.
bool Swap::is_worth_it(const Request& victim) const {
  if (context_.config.swap.swap_choice == SwapChoice::always) return true;
  const bool has_near = context_.config.swap.num_far_places < context_.config.swap.num_swap_places;
  if (has_near && (costs_.out_bytes_per_s <= 0.0 || costs_.in_bytes_per_s <= 0.0)) return false;
  if (costs_.prefill_tokens_per_s <= 0.0) return false;
  double bytes = 0.0;
  std::int64_t num_tokens = 0, num_encoded = 0;
  std::uint64_t num_blocks = 0;
  for (std::uint32_t group = 0; group < context_.num_groups; ++group) {
    const std::uint32_t num_own = kv_.num_own_blocks(victim.blocks, static_cast<std::uint32_t>(victim.num_computed_tokens), group);
    bytes += static_cast<double>(group_bytes_[group]) * num_own;
    num_blocks += num_own;
    // Of what an encoder has made, each costs about as much as a token.
    std::int64_t& count = is_encoded_[group] ? num_encoded : num_tokens;
    count = std::max(count, std::int64_t{num_own} * kv_.block_size(group));
  }
  const auto to_compute = static_cast<double>(std::min<std::int64_t>(num_tokens, victim.num_computed_tokens) + num_encoded);
  // What finds no near place.
  const std::uint64_t num_far = num_blocks - std::min<std::uint64_t>(num_blocks, free_places_.size());
  const double far_bytes = num_blocks == 0 ? 0.0 : bytes * static_cast<double>(num_far) / static_cast<double>(num_blocks);
  if (far_bytes > 0.0 && (costs_.far_out_bytes_per_s <= 0.0 || costs_.far_in_bytes_per_s <= 0.0)) return false;
  const double near_bytes = bytes - far_bytes;
  double seconds = near_bytes > 0.0 ? near_bytes / costs_.out_bytes_per_s + near_bytes / costs_.in_bytes_per_s : 0.0;
  if (far_bytes > 0.0) seconds += far_bytes / costs_.far_out_bytes_per_s + far_bytes / costs_.far_in_bytes_per_s;
  return seconds < to_compute / costs_.prefill_tokens_per_s;
}

bool Swap::decline(const Request& victim, EventCause cause, std::uint64_t& counter) {
  ++counter;
  tell(EventKind::swap_declined, cause, victim, Requests::num_blocks(victim));
  return false;
}

SwappedBlocks& Swap::make(Request& request) {
  if (spare_.empty()) spare_.push_back(std::make_unique<SwappedBlocks>());
  SwappedBlocks& swapped = *swapped_.emplace_back(std::move(spare_.back()));
  spare_.pop_back();
  QUIRE_CHECK(swapped.blocks.empty() && swapped.places.empty() && swapped.num_open == 0, "memory that is used again was given back");
  swapped.has_failed = false;
  swapped.request = &request;
  request.swapped = &swapped;
  return swapped;
}

void Swap::release(SwappedBlocks& swapped) {
  QUIRE_CHECK(swapped.request == nullptr && swapped.num_open == 0, "nobody moves or wants these blocks");
  QUIRE_CHECK(num_free_places() + swapped.places.size() <= context_.config.swap.num_swap_places, "a place comes back once");
  // In reverse, so that the places lie as they lay before.
  for (auto place = swapped.places.rbegin(); place != swapped.places.rend(); ++place) give_place(static_cast<std::uint32_t>(*place));
  swapped.blocks.clear();
  swapped.places.clear();
  const auto found = std::ranges::find(swapped_, &swapped, &std::unique_ptr<SwappedBlocks>::get);
  QUIRE_CHECK(found != swapped_.end(), "blocks are released once");
  spare_.push_back(std::move(*found));
  swapped_.erase(found);
}

bool Swap::can_come_back(const Request& request) const {
  QUIRE_CHECK(request.swapped != nullptr, "something of it lies elsewhere");
  return request.swapped->stage == SwappedBlocks::Stage::stored && request.num_in_flight == 0 && may_begin();
}

std::uint32_t Swap::bring_back(Request& request, std::uint32_t num_left_free) {
  SwappedBlocks& swapped = *request.swapped;
  QUIRE_CHECK(swapped.stage == SwappedBlocks::Stage::stored, "what comes back was stored");
  const auto num_next =
      static_cast<std::uint32_t>(context_.config.scheduler.reserve_full_isl ? request.num_tokens() : request.num_computed_tokens + 1);
  if (const std::uint32_t missing =
          kv_.bring_back(requests_.kv_request(request), swapped.blocks, {.num_tokens = num_next, .num_left_free = num_left_free}))
    return missing;
  swapped.stage = SwappedBlocks::Stage::loading;
  to_begin_.push_back(&swapped);
  return 0;
}

void Swap::drop(Request& request, EventCause cause) {
  QUIRE_CHECK(request.swapped != nullptr, "it gives up what lies elsewhere");
  ++context_.totals.num_swaps_lost;
  tell(EventKind::swap_lost, cause, request, request.swapped->blocks.size());
  forget(request);
}

void Swap::forget(Request& request) {
  SwappedBlocks& swapped = *request.swapped;
  // Taken out in this very step: what it holds with others is needed already, and nothing of it moves.
  if (swapped.stage == SwappedBlocks::Stage::storing && swapped.num_open == 0) std::erase(to_begin_, &swapped);
  QUIRE_CHECK(std::ranges::find(to_begin_, &swapped) == to_begin_.end(), "its transfers are begun or over");
  // Loads still write to its blocks: they are kept (swapped.left) until the last of them is over.
  if (is_loading(request)) {
    QUIRE_CHECK(queues_.num_loading > 0, "requests whose blocks are being loaded are counted");
    std::swap(request.blocks, swapped.left);
    request.status = RequestStatus::preempted;
    request.failed_receiving = false;
    --queues_.num_loading;
  } else {
    kv_.free(request.blocks);
  }
  detach(request);
  request.num_computed_tokens = 0;
  if (swapped.num_open == 0) release(swapped);
}

void Swap::detach(Request& request) {
  QUIRE_CHECK(request.swapped != nullptr && request.swapped->request == &request, "they know each other");
  request.swapped->request = nullptr;
  request.swapped = nullptr;
}

bool Swap::give_up_last(const Request& beneficiary) {
  const auto gives = [&](const std::unique_ptr<SwappedBlocks>& swapped) {
    const Request* request = swapped->request;
    return request != nullptr && request != &beneficiary && swapped->stage != SwappedBlocks::Stage::loading &&
           kv_.holds_any(request->blocks);
  };
  const auto last = std::find_if(swapped_.rbegin(), swapped_.rend(), gives);
  if (last == swapped_.rend()) return false;
  drop(*(*last)->request, EventCause::lack_of_blocks);
  return true;
}

void Swap::drop_all(EventCause cause) {
  for (std::size_t i = swapped_.size(); i > 0; --i)
    if (swapped_[i - 1]->request != nullptr) drop(*swapped_[i - 1]->request, cause);
}

void Swap::plan(PlanArena& arena) {
  for (SwappedBlocks* swapped : to_begin_) begin(*swapped, arena);
  to_begin_.clear();
}

// One transfer for each group.
void Swap::begin(SwappedBlocks& swapped, PlanArena& arena) {
  QUIRE_CHECK(swapped.request != nullptr && swapped.num_open == 0, "its transfers begin in one plan");
  // It shared all that it had: nothing is to be loaded, and no transfer's end would say so.
  if (swapped.blocks.empty()) return loads_over(swapped);
  for (std::size_t first = 0; first < swapped.blocks.size();) {
    const std::uint32_t group = swapped.blocks[first].group;
    ids_.clear();
    while (first + ids_.size() < swapped.blocks.size() && swapped.blocks[first + ids_.size()].group == group)
      ids_.push_back(swapped.blocks[first + ids_.size()].block);
    const bool is_store = swapped.stage == SwappedBlocks::Stage::storing;
    const std::optional<Transfer> opened = open_transfers_.open({.id = {},
                                                                 .request = swapped.request->id,
                                                                 .direction = is_store ? TransferDirection::store : TransferDirection::load,
                                                                 .need = TransferNeed::nothing,
                                                                 .group = group,
                                                                 .tier = kSwapTier,
                                                                 .blocks = ids_,
                                                                 .places = std::span(swapped.places).subspan(first, ids_.size())});
    QUIRE_CHECK(opened.has_value(), "there was room for these transfers");
    arena.add_transfer(*opened);
    open_.push_back({opened->id, &swapped});
    ++swapped.num_open;
    first += ids_.size();
  }
}

void Swap::over(const TransferCompletion& completion) {
  const auto found = std::ranges::find(open_, completion.transfer, &Open::id);
  QUIRE_CHECK(found != open_.end() && found->swapped->num_open > 0, "the transfers of swapped blocks are counted");
  SwappedBlocks& swapped = *found->swapped;
  open_.erase(found);
  swapped.has_failed |= completion.outcome == TransferOutcome::failed;
  if (--swapped.num_open > 0) return;
  if (swapped.request == nullptr) {
    kv_.free(swapped.left);
    release(swapped);
  } else if (swapped.stage == SwappedBlocks::Stage::storing) {
    stores_over(swapped);
  } else {
    loads_over(swapped);
  }
}

void Swap::stores_over(SwappedBlocks& swapped) {
  QUIRE_CHECK(swapped.stage == SwappedBlocks::Stage::storing && swapped.request != nullptr, "stores that somebody waits for");
  swapped.stage = SwappedBlocks::Stage::stored;
  if (swapped.has_failed) drop(*swapped.request, EventCause::failed_transfer);
}

// Either way the request is promoted as one whose blocks have come.
void Swap::loads_over(SwappedBlocks& swapped) {
  QUIRE_CHECK(swapped.stage == SwappedBlocks::Stage::loading && queues_.num_loading > 0, "loads that somebody waits for");
  Request& request = *swapped.request;
  request.finished_receiving = true;
  --queues_.num_loading;
  if (swapped.has_failed) return drop(request, EventCause::failed_transfer);
  kv_.name_again(requests_.kv_request(request), swapped.blocks);
  ++context_.totals.num_swapped_in;
  context_.totals.num_swapped_in_blocks += swapped.blocks.size();
  context_.totals.num_swapped_in_tokens += static_cast<std::uint64_t>(request.num_computed_tokens);
  if (context_.events.wanted())
    context_.events.on_event({.what = EventKind::swapped_in,
                              .owner = request.id,
                              .amount = static_cast<std::uint32_t>(swapped.blocks.size()),
                              .total = static_cast<std::uint32_t>(request.num_computed_tokens)});
  detach(request);
  release(swapped);
}

void Swap::tell(EventKind what, EventCause cause, const Request& request, std::size_t num_blocks) {
  if (context_.events.wanted())
    context_.events.on_event({.what = what, .cause = cause, .owner = request.id, .amount = static_cast<std::uint32_t>(num_blocks)});
}

std::uint32_t Swap::num_awaiting() const {
  return static_cast<std::uint32_t>(std::ranges::count_if(swapped_, [](const std::unique_ptr<SwappedBlocks>& swapped) {
    return swapped->num_open > 0 && (swapped->request == nullptr || swapped->stage == SwappedBlocks::Stage::storing);
  }));
}

bool Swap::any_out() const {
  return std::ranges::any_of(swapped_, [](const std::unique_ptr<SwappedBlocks>& swapped) { return swapped->request != nullptr; });
}

void Swap::check_invariants() const {
  check_rules(broken_rule());
}

const Rule* Swap::broken_rule() const {
  std::vector<std::uint32_t> num_owners(context_.config.swap.num_swap_places, 0);
  bool are_places = true;
  const auto count = [&](std::uint64_t place) {
    are_places &= place < num_owners.size();
    if (are_places) ++num_owners[static_cast<std::size_t>(place)];
  };
  std::ranges::for_each(free_places_, count);
  std::ranges::for_each(free_far_places_, count);
  std::size_t num_open = 0;
  for (const std::unique_ptr<SwappedBlocks>& swapped : swapped_) {
    std::ranges::for_each(swapped->places, count);
    QUIRE_RULE(swapped->request == nullptr || swapped->request->swapped == swapped.get(), "a request knows its swapped blocks");
    QUIRE_RULE(swapped->request == nullptr || (swapped->stage == SwappedBlocks::Stage::stored) == (swapped->num_open == 0),
               "what is stored does not move");
    num_open += swapped->num_open;
  }
  QUIRE_RULE(are_places && std::ranges::all_of(num_owners, [](std::uint32_t num) { return num == 1; }),
             "a swap place is free or has one owner");
  QUIRE_RULE(num_open == open_.size() && to_begin_.empty(), "transfers of swapped blocks are counted");
  return nullptr;
}

std::vector<Swap::Moving> Swap::to_moving() const {
  std::vector<Moving> all;
  for (const Open& open : open_) {
    const auto found = std::ranges::find(swapped_, open.swapped, &std::unique_ptr<SwappedBlocks>::get);
    QUIRE_CHECK(found != swapped_.end(), "an open transfer is of blocks that are swapped out");
    all.push_back({.id = open.id.value, .place = static_cast<std::uint64_t>(found - swapped_.begin())});
  }
  return all;
}

bool Swap::assign(std::span<const Moving> all) {
  for (const std::unique_ptr<SwappedBlocks>& swapped : swapped_) {
    if (swapped->request == nullptr) continue;
    if (std::exchange(swapped->request->swapped, swapped.get()) != nullptr) return false;
  }
  std::vector<std::uint32_t> num_open(swapped_.size(), 0);
  for (const Moving& one : all) {
    const OpenTransfers::Entry* const entry = open_transfers_.find(TransferId{one.id});
    if (entry == nullptr || entry->tier != kSwapTier || one.place >= swapped_.size()) return false;
    if (std::ranges::find(open_, entry->id, &Open::id) != open_.end()) return false;
    open_.push_back({entry->id, swapped_[static_cast<std::size_t>(one.place)].get()});
    ++num_open[static_cast<std::size_t>(one.place)];
  }
  for (std::size_t i = 0; i < swapped_.size(); ++i)
    if (swapped_[i]->num_open != num_open[i]) return false;
  return static_cast<std::size_t>(std::ranges::count(open_transfers_.all(), kSwapTier, &OpenTransfers::Entry::tier)) == open_.size();
}

}  // namespace quire
