#pragma once
// Transfers between KV blocks and another tier, which begin with a plan, and their completions.
//
// States of a transfer, and the call that moves it there:
//   open  the transfer is part of a plan          TransferList::add, for a connector
//   over  the transport has reported the outcome  the result of that plan or of a later one, through Core::apply()
//
// Values with views, used on the core's thread. A transport reads a transfer on other threads until it has reported the outcome.
#include <cstdint>
#include <optional>
#include <span>

#include "quire/base/ids.h"

namespace quire {

// Identifies one transfer; unique for the life of a core. Later transfers have greater ids.
using TransferId = Id<struct TransferTag, std::uint64_t>;

enum class TransferDirection : std::uint8_t {
  load,  // fills the blocks
  store  // reads what earlier steps have written to the blocks (a block that a request hits may be written only by this plan)
};

// The work that must not begin before the transfer is over.
enum class TransferNeed : std::uint8_t {
  nothing,        // a store, or a load for which its request waits (ExternalMatch::load_async)
  step,           // the forward pass of this plan
  layer_by_layer  // layer i of the forward pass of this plan needs layer i of the blocks
};

// A transfer of blocks between the KV cache and the slots of a tier.
struct Transfer {
  TransferId id;
  RequestId request;  // the request that the transfer is for
  TransferDirection direction = TransferDirection::load;
  TransferNeed need = TransferNeed::nothing;
  std::uint32_t group = 0;                // cache group
  std::uint32_t tier = 0;                 // tier that contains the slots, if an engine has several tiers
  std::span<const BlockId> blocks;        // each block once
  std::span<const std::uint64_t> places;  // parallel to `blocks`: each block's slot, as a number of the connector
};

// Transfer::tier of the core's own transfers, which move blocks of preempted requests (SwapOptions). Their slots are 0 to num_swap_slots -
// 1.
inline constexpr std::uint32_t kSwapTier = UINT32_MAX;

enum class TransferOutcome : std::uint8_t { done, failed };

// The outcome of one transfer.
struct TransferCompletion {
  TransferId transfer;
  TransferOutcome outcome = TransferOutcome::done;
  std::uint64_t bytes = 0;                // bytes moved
  double seconds = 0.0;                   // since the transfer began
  std::span<const BlockId> bad_blocks{};  // failed load: blocks without valid content; empty: all blocks of the transfer
};

// Adds a connector's transfers to a plan.
class TransferList {
 public:
  // Adds a transfer to the plan and returns its id. `transfer.id` is ignored; the views are copied. Returns nullopt if
  // CoreLimits::max_open_transfers transfers are open, or for a store while a load that the step in flight needs is not over. After
  // nullopt, the connector may try again with a later plan.
  virtual std::optional<TransferId> add(const Transfer& transfer) = 0;

 protected:
  ~TransferList() = default;
};

}  // namespace quire
