#pragma once
// Simulates a tier of random speed and faults for a core with a fake worker.
#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/random.h"
#include "core/connect/lasting_places.h"
#include "core/schedule/fake_worker.h"
#include "quire/base/transfer.h"
#include "quire/offload.h"

namespace quire::test {

// The content of a tier by slot; an empty vector means an empty slot. A persistent tier has keys too.
struct TierContent {
  std::map<std::uint64_t, std::vector<std::uint64_t>> blocks;
  std::map<std::uint64_t, OffloadKey> names;
};

// Copies between a fake worker's blocks and slots. Transfers wait in a queue until a random draw, a fence or the end of the test runs them.
class RandomCopies {
 public:
  RandomCopies(FakeWorker& worker, Random& random, double failed, LastingPlaces* places, TierContent& content)
      : worker_(worker), random_(random), failed_(failed), places_(places), content_(content) {}

  void start(const Transfer& transfer, StepId step) {
    queue_.push_back({transfer.id,
                      step,
                      transfer.direction,
                      {transfer.blocks.begin(), transfer.blocks.end()},
                      {transfer.places.begin(), transfer.places.end()}});
  }
  void wait(TransferId id) {
    const auto found = std::ranges::find(queue_, id, &Queued::id);
    if (found == queue_.end()) return;
    if (places_ == nullptr || found->direction == TransferDirection::load) return copy(id);
    over_.push_back({found->step, {.transfer = id, .outcome = TransferOutcome::failed}});
    queue_.erase(found);
  }
  // Runs some of the queued transfers.
  void proceed(double share) {
    std::vector<TransferId> ids;
    for (const Queued& queued : queue_)
      if (random_.chance(share)) ids.push_back(queued.id);
    while (!ids.empty()) {
      const auto chosen = ids.begin() + static_cast<std::ptrdiff_t>(random_.below(ids.size()));
      if (std::ranges::find(queue_, *chosen, &Queued::id) != queue_.end()) copy(*chosen);
      ids.erase(chosen);
    }
  }
  // Returns some of the finished transfers that began with this plan or an earlier one.
  std::vector<TransferCompletion> poll(StepId step, double share) {
    std::vector<TransferCompletion> told;
    std::erase_if(over_, [&](const Over& over) {
      const bool tells = over.step <= step && random_.chance(share);
      if (tells) told.push_back(over.completion);
      return tells;
    });
    return told;
  }
  [[nodiscard]] bool is_idle() const { return queue_.empty() && over_.empty(); }

 private:
  struct Queued {
    TransferId id;
    StepId step;
    TransferDirection direction;
    std::vector<BlockId> blocks;
    std::vector<std::uint64_t> places;
  };
  struct Over {
    StepId step;
    TransferCompletion completion;
  };

  void copy(TransferId id) {
    const Queued queued = *std::ranges::find(queue_, id, &Queued::id);
    // Earlier transfers of the same slots run first.
    for (const Queued& other : std::vector(queue_))
      if (other.id < id && std::ranges::find_first_of(other.places, queued.places, {}, place_of, place_of) != other.places.end())
        copy(other.id);
    std::erase_if(queue_, [&](const Queued& other) { return other.id == id; });
    bool is_good = !random_.chance(failed_);
    for (std::size_t i = 0; i < queued.blocks.size(); ++i) {
      const std::span<std::uint64_t> block = worker_.block(queued.blocks[i]);
      const std::uint64_t number = place_of(queued.places[i]);
      std::vector<std::uint64_t>& place = content_.blocks[number];
      is_good &= places_ == nullptr || places_->is_current(queued.places[i]);
      if (queued.direction == TransferDirection::store) {
        place.assign(block.begin(), is_good ? block.end() : block.begin());
        if (places_ != nullptr) content_.names[number] = places_->name(number);
        continue;
      }
      is_good &= !place.empty();
      std::ranges::fill(block, 0x5A5A);
      if (is_good) std::ranges::copy(place, block.begin());
    }
    over_.push_back({queued.step, {.transfer = id, .outcome = is_good ? TransferOutcome::done : TransferOutcome::failed}});
  }

  static std::uint64_t place_of(std::uint64_t number) { return static_cast<std::uint32_t>(number); }

  FakeWorker& worker_;
  Random& random_;
  double failed_;
  LastingPlaces* places_;  // set if the tier is persistent
  TierContent& content_;
  std::vector<Queued> queue_;
  std::vector<Over> over_;
};

}  // namespace quire::test
