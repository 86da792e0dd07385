#pragma once
// The worker's half of transfers: begins the transfers of plans, waits where a pass must, and collects ended transfers. The thread that
// leads the step calls it. Without a transport, plans have no transfers.
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "quire/base/plan.h"
#include "quire/transport.h"

namespace quire {

// Totals since the start of the worker.
struct TransferTotals {
  std::uint64_t num_loads = 0, num_stores = 0;  // that have ended
  std::uint64_t bytes_loaded = 0, bytes_stored = 0;
  std::uint64_t num_failed = 0;
  std::uint64_t num_unexpected = 0;  // ends of transfers that had ended or never began: an error of the transport, skipped
};

// Transfers collected after one step, with the memory for their views.
struct CollectedTransfers {
  std::vector<TransferCompletion> completions;
  std::vector<std::vector<BlockId>> bad_blocks;
  TransferTotals totals;
};

// The order within a step, which protects the bytes of blocks:
//   store(plan)             bytes of earlier steps are read before they can be overwritten
//   zero and copy blocks    by the worker
//   load(plan)              then blocks are filled
//   before_attention(i)     layer i waits for its part of loads that the pass needs
//   collect()               after sampling
class TransferRunner {
 public:
  // `transport` may be null.
  TransferRunner(std::shared_ptr<Transport> transport, const KvPages& pages);
  // Detaches the transport, which then no longer touches the memory.
  ~TransferRunner();
  TransferRunner(const TransferRunner&) = delete;
  TransferRunner& operator=(const TransferRunner&) = delete;

  [[nodiscard]] bool has_transport() const { return transport_ != nullptr; }
  // Sets the callback; called before the first plan. The callback runs after each end of a transfer, on any thread.
  void set_notify(std::function<void()> notify);

  // Begins the plan's stores and waits for its fences. Called before the plan's blocks are written.
  void store(const StepPlan& plan);
  // Begins the plan's loads, and waits for the loads that the whole pass needs. Called when the plan's blocks may be written.
  void load(const StepPlan& plan);
  // Called before a layer reads or writes its pages, and after it has written them.
  void before_attention(std::uint32_t layer);
  void after_kv_write(std::uint32_t layer);
  // Collects the transfers that have ended since the last call.
  void collect(CollectedTransfers& into);

 private:
  struct NotifyState;
  struct Open {
    TransferId id;
    TransferDirection direction;
  };
  void begin(const Transfer& transfer);

  std::shared_ptr<Transport> transport_;
  std::shared_ptr<NotifyState> notify_state_;  // shared with the transport
  // Begun and not collected; there are few.
  std::vector<Open> open_;
  std::vector<TransferId> by_layer_;  // of the current plan
  std::vector<TransferCompletion> over_;
  TransferTotals totals_;
};

}  // namespace quire
