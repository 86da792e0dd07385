#pragma once
// Runs the transfers of a worker: begins the transfers of plans, waits for transfers that a forward pass needs, and collects ended
// transfers. Called by the thread that leads the step. Without a transport, plans have no transfers.
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
  std::uint64_t num_unexpected = 0;  // reported ends of transfers that were not open; ignored
};

// Transfers collected after one step. `bad_blocks` owns the memory that the completions refer to.
struct CollectedTransfers {
  std::vector<TransferCompletion> completions;
  std::vector<std::vector<BlockId>> bad_blocks;
  TransferTotals totals;
};

// Calls within a step, in this order, which protects the bytes of blocks:
//   store(plan)             blocks are read before the step can overwrite them
//   zero and copy blocks    by the worker
//   load(plan)              fills blocks
//   before_attention(i)     layer i waits for its part of layer-by-layer loads
//   collect()               after sampling
class TransferRunner {
 public:
  // `transport` may be null.
  TransferRunner(std::shared_ptr<Transport> transport, const KvPages& pages);
  // Detaches the transport, which no longer accesses the KV cache afterwards.
  ~TransferRunner();
  TransferRunner(const TransferRunner&) = delete;
  TransferRunner& operator=(const TransferRunner&) = delete;

  [[nodiscard]] bool has_transport() const { return transport_ != nullptr; }
  // Sets the callback. Must be called before the first plan. The callback runs after each end of a transfer, on any thread.
  void set_notify(std::function<void()> notify);

  // Begins the plan's stores and waits for its fences. Called before the plan's blocks are written.
  void store(const StepPlan& plan);
  // Begins the plan's loads and waits for the loads that the whole pass needs. Called when the blocks of the plan may be overwritten.
  void load(const StepPlan& plan);
  // before_attention() is called before a layer reads or writes its pages, after_kv_write() after the layer has written them.
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
  // Transfers that have begun and were not collected.
  std::vector<Open> open_;
  std::vector<TransferId> by_layer_;  // of the current plan
  std::vector<TransferCompletion> over_;
  TransferTotals totals_;
};

}  // namespace quire
