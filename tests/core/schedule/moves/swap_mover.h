#pragma once
// SwapMover moves the blocks of swapped requests for a harness: late, out of order and with the faults that a test requests. It also
// records which request owns which slot.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "base/random.h"
#include "core/schedule/harness.h"

namespace quire::test {

struct SwapFaults {
  double late = 0.5;    // share of transfers that are still open at the plan's result
  double failed = 0.0;  // share of transfers that fail and leave garbage
};

class SwapMover {
 public:
  SwapMover(Harness& harness, const SwapFaults& faults, std::uint64_t seed) : h_(harness), faults_(faults), random_(seed) {
    harness.move = [this](const StepPlan& plan) { move(plan); };
  }

  // Checks that the core's slots agree with the transfers seen.
  void check_places() {
    const Places out = swapped_places();
    drop_unwanted(out);
    EXPECT_EQ(h_.core->counters().num_used_swap_slots, owners_.size());
    for (const auto& [request, places] : out)
      for (const std::uint64_t place : places) EXPECT_EQ(owners_.at(place).request, request);
  }

  std::uint64_t num_stores = 0, num_loads = 0, num_failed = 0, num_fenced = 0;

 private:
  using Places = std::map<RequestId, std::set<std::uint64_t>>;
  struct Owner {
    RequestId request;
    StepId since;
    friend auto operator<=>(const Owner&, const Owner&) = default;
  };
  struct Open {
    RequestId request;
    TransferDirection direction;
    std::vector<BlockId> blocks;
    std::vector<std::uint64_t> places;
  };

  [[nodiscard]] Places swapped_places() const {
    CoreSnapshot now;
    h_.core->snapshot(now);
    Places out;
    for (const auto& [request, places] : now.swapped) out[request].insert(places.begin(), places.end());
    return out;
  }

  // Removes slots that neither a request nor a transfer uses.
  void drop_unwanted(const Places& out) {
    std::erase_if(reported_, [&](const auto& reported) {
      return !h_.completions.contains(reported.first) || h_.completions.at(reported.first).empty();
    });
    std::set<Owner> moving;  // slots are freed when none of the blocks swapped out together moves
    for (const auto& [place, owner] : owners_)
      if (is_moving(place)) moving.insert(owner);
    std::erase_if(owners_, [&](const auto& owned) {
      const auto found = out.find(owned.second.request);
      return (found == out.end() || !found->second.contains(owned.first)) && !moving.contains(owned.second);
    });
  }

  void move(const StepPlan& plan) {
    drop_unwanted(swapped_places());
    for (const Transfer& transfer : plan.transfers)
      if (transfer.direction == TransferDirection::store) begin(transfer, plan.step);
    for (const TransferId fence : plan.fences) {
      num_fenced += open_.contains(fence) ? 1 : 0;
      if (open_.contains(fence)) end(fence, plan.step);
    }
    for (const Transfer& transfer : plan.transfers)
      if (transfer.direction == TransferDirection::load) begin(transfer, plan.step);
    std::vector<TransferId> ids;
    for (const auto& [id, open] : open_) ids.push_back(id);
    for (std::size_t i = ids.size(); i > 0; --i) {
      std::swap(ids[i - 1], ids[random_.below(i)]);
      if (!random_.chance(faults_.late)) end(ids[i - 1], plan.step);
    }
    check_places();
  }

  void begin(const Transfer& transfer, StepId step) {
    EXPECT_EQ(transfer.tier, kSwapTier);
    EXPECT_EQ(transfer.need, TransferNeed::nothing);
    EXPECT_EQ(transfer.blocks.size(), transfer.places.size());
    const bool is_store = transfer.direction == TransferDirection::store;
    ++(is_store ? num_stores : num_loads);
    for (const std::uint64_t place : transfer.places) {
      EXPECT_LT(place, h_.config.swap.num_swap_slots);
      if (is_store)
        EXPECT_TRUE(owners_.emplace(place, Owner{transfer.request, step}).second) << "another request owns the slot";
      else
        EXPECT_EQ(owners_.at(place).request, transfer.request);
      EXPECT_FALSE(is_moving(place));
    }
    open_[transfer.id] = {.request = transfer.request,
                          .direction = transfer.direction,
                          .blocks = {transfer.blocks.begin(), transfer.blocks.end()},
                          .places = {transfer.places.begin(), transfer.places.end()}};
  }

  void end(TransferId id, StepId step) {
    const Open open = std::move(open_.at(id));
    open_.erase(id);
    const bool fails = random_.chance(faults_.failed);
    num_failed += fails ? 1 : 0;
    for (std::size_t i = 0; i < open.blocks.size(); ++i) {
      const std::span<std::uint64_t> block = h_.worker.block(open.blocks[i]);
      std::vector<std::uint64_t>& content = content_[open.places[i]];
      if (open.direction == TransferDirection::store)
        content.assign(block.begin(), block.end());
      else
        std::ranges::copy(content, block.begin());
      if (fails) std::ranges::fill(open.direction == TransferDirection::store ? std::span(content) : block, 0xBAD);
    }
    reported_[step].insert(open.places.begin(), open.places.end());
    h_.completions[step].push_back({.transfer = id, .outcome = fails ? TransferOutcome::failed : TransferOutcome::done});
  }

  // Returns whether a transfer of the slot is open as far as the core knows.
  [[nodiscard]] bool is_moving(std::uint64_t place) const {
    if (std::ranges::any_of(reported_, [&](const auto& reported) { return reported.second.contains(place); })) return true;
    return std::ranges::any_of(open_, [&](const auto& one) { return std::ranges::count(one.second.places, place) > 0; });
  }

  Harness& h_;
  SwapFaults faults_;
  Random random_;
  std::map<TransferId, Open> open_;
  std::map<StepId, std::set<std::uint64_t>> reported_;           // slots of finished transfers, by the result that reports them
  std::map<std::uint64_t, Owner> owners_;                        // by slot
  std::map<std::uint64_t, std::vector<std::uint64_t>> content_;  // by slot
};

}  // namespace quire::test
