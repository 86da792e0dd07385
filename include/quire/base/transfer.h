#pragma once
// What a plan moves between KV blocks and another place, and what comes back.
//
// States of a transfer, and who moves it:
//   open  a plan names it                           TransferList::add, on a connector's behalf
//   over  the transport has said so, and how        the result of that plan or of a later one, through Core::apply()
//
// Values with views, of the core's thread; a transport reads a transfer on other threads until it has said that it is over.
#include <cstdint>
#include <optional>
#include <span>

#include "quire/base/ids.h"

namespace quire {

// One transfer, unique for the life of a core; later ones are greater.
using TransferId = Id<struct TransferTag, std::uint64_t>;

enum class TransferDirection : std::uint8_t {
  load,  // fills the blocks
  store  // reads what the steps before this plan have written to them (a block that a request hits may be written by the plan itself)
};

// What must not begin before the transfer is over.
enum class TransferNeed : std::uint8_t {
  nothing,        // a store, or a load whose request waits for it (ExternalMatch::load_async)
  step,           // the forward pass of this plan
  layer_by_layer  // layer i of the forward pass of this plan needs layer i of the blocks
};

struct Transfer {
  TransferId id;
  RequestId request;  // for which
  TransferDirection direction = TransferDirection::load;
  TransferNeed need = TransferNeed::nothing;
  std::uint32_t group = 0;                // cache group
  std::uint32_t tier = 0;                 // whose places they are, where an engine has several
  std::span<const BlockId> blocks;        // each once
  std::span<const std::uint64_t> places;  // parallel to `blocks`: where each is outside; the connector's own numbers
};

// Transfer::tier of what the core moves on its own account: blocks of preempted requests (SwapOptions). Its places are 0 to
// num_swap_places - 1.
inline constexpr std::uint32_t kSwapTier = UINT32_MAX;

enum class TransferOutcome : std::uint8_t { done, failed };

struct TransferCompletion {
  TransferId transfer;
  TransferOutcome outcome = TransferOutcome::done;
  std::uint64_t bytes = 0;                // moved
  double seconds = 0.0;                   // from its beginning
  std::span<const BlockId> bad_blocks{};  // a load that failed: the blocks that hold nothing good; empty: all of the transfer
};

// What a connector adds to a plan.
class TransferList {
 public:
  // `transfer.id` is ignored; its views are copied. nullopt: ask again with the next plan, or never. As many transfers are open as may be
  // (CoreLimits::max_open_transfers); or it is a store, and it is not known yet whether a load came that the step in flight needs.
  virtual std::optional<TransferId> add(const Transfer& transfer) = 0;

 protected:
  ~TransferList() = default;
};

}  // namespace quire
