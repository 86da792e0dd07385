#pragma once
// Interface that moves bytes: carries out the transfers that a connector has planned, in parallel with the steps.
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "quire/base/kv_layout.h"
#include "quire/base/transfer.h"

namespace quire {

// The memory of the KV cache. Only the layers that write a page know its content.
struct KvPages {
  const KvLayout* layout = nullptr;
  std::vector<std::byte*> tensors;  // start of each tensor, which has `page_bytes[tensor]` per block

  // Returns the page of a block in a tensor. A block of group g has pages in the first groups[g].layers.size() tensors.
  [[nodiscard]] std::span<std::byte> page(std::uint32_t tensor, BlockId block) const {
    const std::uint64_t bytes = layout->page_bytes[tensor];
    return {tensors[tensor] + block.value * bytes, bytes};
  }
};

// Worker half of a KV connector. attach() and detach() are called when the engine is created and destroyed; all other functions by the
// thread that leads a step, which may differ from step to step. No function may throw.
class Transport {
 public:
  virtual ~Transport() = default;
  // Called once, before all others. The memory stays valid until detach(). The transport calls `notify` after each end of a transfer, on
  // any thread.
  virtual void attach(const KvPages& pages, std::function<void()> notify) = 0;
  // Starts a transfer and returns. The views in `transfer` are valid until then. Called in the order of the plans. Until a load or store is
  // over, no other code writes to its blocks. An error found here is reported by poll() like any other, as TransferOutcome::failed.
  virtual void start(const Transfer& transfer) = 0;
  // Appends the transfers that ended since the last call, each once, in any order. Views are valid until the next call.
  virtual void poll(std::vector<TransferCompletion>& over) = 0;
  // Returns when the transfer is over. A transfer that poll() has reported is over.
  virtual void wait(TransferId transfer) = 0;
  // Returns when a load has filled one layer of the model.
  virtual void wait_for_layer(TransferId transfer, std::uint32_t /*layer*/) { wait(transfer); }
  // Called when this step's keys and values are in the pages of this layer.
  virtual void layer_written(std::uint32_t /*layer*/) {}
  // When it returns, no transfer accesses the memory any more, even if it has not ended.
  virtual void detach() = 0;
};

}  // namespace quire
