#pragma once
// Copies KV blocks between a device that is host memory (vLLM on CPU) and slots of host memory, on a thread of its own, first come first
// served: vLLM's own copies need a GPU.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quire/base/api.h"

namespace quire {

// One tensor of the KV cache and where its blocks go: page_bytes for each block, one after the other, on both sides. A slot of host memory
// is as many consecutive pages as blocks make an offloaded one; it is the caller who counts in them.
struct CopiedTensor {
  std::byte* device = nullptr;
  std::byte* host = nullptr;
  std::uint64_t page_bytes = 0;
  std::uint64_t num_device_pages = 0, num_host_pages = 0;
};

struct CopyJob {
  std::uint64_t id = 0;
  bool to_host = false;
  std::vector<std::uint64_t> device_pages, host_pages;  // parallel
  std::vector<std::uint32_t> tensors = {};              // by number; empty: all
  // When all is copied, marks[i] is written to number numbers[i]; what has seen it sees the bytes.
  std::vector<std::uint64_t> marks, numbers;
};

struct CopyOver {
  std::uint64_t id = 0;
  std::uint64_t bytes = 0;
  double seconds = 0.0;
};

// Any thread.
class QUIRE_API BlockCopier {
 public:
  // The memory outlives it. `marks`: num_marks numbers; may be null where no job has any.
  BlockCopier(std::vector<CopiedTensor> tensors, std::uint64_t* marks, std::uint64_t num_marks);
  // What is being copied is finished, what was not begun is dropped.
  ~BlockCopier();
  BlockCopier(const BlockCopier&) = delete;
  BlockCopier& operator=(const BlockCopier&) = delete;

  // Returns at once. false: a page or a mark is out of range, and nothing is copied.
  [[nodiscard]] bool submit(CopyJob job);
  // Those that have ended since the last time, in one direction.
  std::vector<CopyOver> take_over(bool to_host);
  // Returns when none of these is waiting or being copied.
  void wait(std::span<const std::uint64_t> ids);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
