#pragma once
// The worker's half of transfers: begins what plans name, waits where a pass must, and collects what is over. The thread that leads the
// step calls it; where no transport is given, plans name no transfers.
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "quire/base/plan.h"
#include "quire/transport.h"

namespace quire {

// Since the start of the worker.
struct TransferTotals {
  std::uint64_t num_loads = 0, num_stores = 0;  // that are over
  std::uint64_t bytes_loaded = 0, bytes_stored = 0;
  std::uint64_t num_failed = 0;
  std::uint64_t num_stray = 0;  // ends of transfers that were over or never began: the transport's error, passed over
};

// What was collected after one step, with the memory behind its views.
struct CollectedTransfers {
  std::vector<TransferCompletion> completions;
  std::vector<std::vector<BlockId>> bad_blocks;
  TransferTotals totals;
};

// The order within a step, which keeps bytes whole:
//   store(plan)             what earlier steps wrote is read before anybody writes
//   zero and copy blocks    by the worker
//   load(plan)              then blocks are filled
//   before_attention(i)     layer i waits for its part of loads that the pass needs
//   collect()               after sampling
class TransferRunner {
 public:
  // `transport` may be null.
  TransferRunner(std::shared_ptr<Transport> transport, const KvPages& pages);
  // The transport touches the memory no more.
  ~TransferRunner();
  TransferRunner(const TransferRunner&) = delete;
  TransferRunner& operator=(const TransferRunner&) = delete;

  [[nodiscard]] bool has_transport() const { return transport_ != nullptr; }
  // Called after each end of a transfer, from any thread. Before the first plan.
  void notify_with(std::function<void()> notify);

  // Before the plan's blocks are written: begins its stores, and waits for its fences.
  void store(const StepPlan& plan);
  // When they may be: begins its loads, and waits for those that the whole pass needs.
  void load(const StepPlan& plan);
  // Before a layer reads or writes its pages, and after it has written them.
  void before_attention(std::uint32_t layer);
  void after_kv_write(std::uint32_t layer);
  // What is over since the last time.
  void collect(CollectedTransfers& into);

 private:
  struct Notice;
  struct Open {
    TransferId id;
    TransferDirection direction;
  };
  void begin(const Transfer& transfer);

  std::shared_ptr<Transport> transport_;
  std::shared_ptr<Notice> notice_;  // the transport has it too
  // Begun and not collected; few.
  std::vector<Open> open_;
  std::vector<TransferId> by_layer_;  // of the plan under way
  std::vector<TransferCompletion> over_;
  TransferTotals totals_;
};

}  // namespace quire
