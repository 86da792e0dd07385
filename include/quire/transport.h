#pragma once
// Interface of the code that moves blocks: it carries out the transfers that a connector has planned, in parallel with the steps.
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "quire/base/kv_layout.h"
#include "quire/base/transfer.h"

namespace quire {

// The memory of the KV cache. The format of a page is known only to the layers that write it.
struct KvPages {
  const KvLayout* layout = nullptr;
  std::vector<std::byte*> tensors;  // start of each tensor, which has `page_bytes[tensor]` per block

  // Returns the page of a block in a tensor. A block of group g has pages in the first groups[g].layers.size() tensors.
  [[nodiscard]] std::span<std::byte> page(std::uint32_t tensor, BlockId block) const {
    const std::uint64_t bytes = layout->page_bytes[tensor];
    return {tensors[tensor] + block.value * bytes, bytes};
  }
};

// Worker half of a KV connector. attach() and detach() are called when the engine is created and destroyed. All other functions are called
// by the thread that leads a step, which may differ from step to step. No function may throw.
class Transport {
 public:
  virtual ~Transport() = default;
  // Called once, before all other functions. The memory stays valid until detach(). The transport must call `notify` each time a transfer
  // ends, on any thread.
  virtual void attach(const KvPages& pages, std::function<void()> notify) = 0;
  // Starts a transfer and returns without waiting for it. The views in `transfer` are valid until start() returns. Transfers are started in
  // the order of the plans. Until a load or store is over, no other code writes to its blocks. If the transfer cannot be started, poll()
  // must report it as TransferOutcome::failed.
  virtual void start(const Transfer& transfer) = 0;
  // Appends the transfers that have ended since the last call to `over`, each once, in any order. Views in `over` are valid until the next
  // call.
  virtual void poll(std::vector<TransferCompletion>& over) = 0;
  // Waits until the transfer is over. Returns immediately for a transfer that poll() has reported.
  virtual void wait(TransferId transfer) = 0;
  // Waits until a load has filled one layer of the model.
  virtual void wait_for_layer(TransferId transfer, std::uint32_t /*layer*/) { wait(transfer); }
  // Called when this step's keys and values have been written to the pages of this layer.
  virtual void layer_written(std::uint32_t /*layer*/) {}
  // Ends all access to the memory: when detach() returns, no transfer reads or writes it, even if the transfer has not ended.
  virtual void detach() = 0;
};

}  // namespace quire
