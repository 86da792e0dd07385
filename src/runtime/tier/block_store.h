#pragma once
// Where a tier's blocks lie, as what moves them there and back (store_transport.h) sees it: a folder, or a store in the network.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "quire/offload.h"

namespace quire {

enum class TierOutcome : std::uint8_t {
  done,
  absent,   // a load: the place does not hold the name (or is not read yet)
  refused,  // a load: what was read does not verify; the place is empty now
  failed,   // the store failed, or the place is in use; after a store the place is empty
  given_up  // nobody wants the bytes any more
};

// A block to store or to load. Both functions are called by one thread for all stores and by another for all loads; they must not throw,
// and submit no job of the other kind.
struct TierJob {
  enum class Verb : std::uint8_t { store, load };
  Verb verb = Verb::store;
  std::uint32_t place = 0;
  OffloadKey name;
  std::uint32_t bytes = 0;  // at most block_bytes; a load: those that were stored
  // Fills the bytes that are to be stored, or takes those that were loaded and verified. false: nobody wants them any more.
  std::function<bool(std::span<std::byte> bytes)> copy;
  std::function<void(TierOutcome outcome)> over;  // once
};

// Any thread.
class BlockStore {
 public:
  virtual ~BlockStore() = default;
  [[nodiscard]] virtual std::uint32_t num_places() const = 0;
  // Of the largest block that it takes.
  [[nodiscard]] virtual std::uint64_t block_bytes() const = 0;
  // Returns at once. What was stored last under a name is what a load of that name gives, or it is a miss.
  virtual void submit(TierJob job) = 0;
};

}  // namespace quire
