#pragma once
// The seam that moves bytes: what a connector has planned is carried out beside the steps.
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "quire/base/kv_layout.h"
#include "quire/base/transfer.h"

namespace quire {

// The memory of the KV cache. What a page holds is the business of the layers that write it.
struct KvPages {
  const KvLayout* layout = nullptr;
  std::vector<std::byte*> tensors;  // where each begins: page_bytes[tensor] for each block

  // What a block has in a tensor. A block of group g has pages in the first groups[g].layers.size() tensors.
  [[nodiscard]] std::span<std::byte> page(std::uint32_t tensor, BlockId block) const {
    const std::uint64_t bytes = layout->page_bytes[tensor];
    return {tensors[tensor] + block.value * bytes, bytes};
  }
};

// attach() and detach() are called where the engine is made and ends, the others by the thread that leads the step, which may be another
// one in each step. None may throw.
class Transport {
 public:
  virtual ~Transport() = default;
  // Once, before all others. The memory stays until detach(). `notify` is called after each end of a transfer, from any thread.
  virtual void attach(const KvPages& pages, std::function<void()> notify) = 0;
  // Begins a transfer and returns; its views are valid until then. Blocks of a load are written by nobody else until it is over, those of a
  // store neither.
  // In the order in which plans name them. An error that shows here is told by poll() like any other, as TransferOutcome::failed.
  virtual void start(const Transfer& transfer) = 0;
  // Appends what is over since the last call, each transfer once, in any order; views are valid until the next call.
  virtual void poll(std::vector<TransferCompletion>& over) = 0;
  // Returns when the transfer is over; one that poll() has told of is.
  virtual void wait(TransferId transfer) = 0;
  // Returns when a load has filled a layer of the model.
  virtual void wait_for_layer(TransferId transfer, std::uint32_t /*layer*/) { wait(transfer); }
  // The keys and values of this step's tokens are in this layer's pages.
  virtual void layer_written(std::uint32_t /*layer*/) {}
  // No transfer touches the memory any more when it returns, whatever becomes of those that are open.
  virtual void detach() = 0;
};

}  // namespace quire
