#pragma once
// Copies KV blocks between vLLM's KV cache on CPU and the slots of a host-memory tier. (vLLM's own copy functions need a GPU.) One separate
// thread copies, in the order of submission.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quire/base/api.h"

namespace quire {

// One tensor of the KV cache and its copy in host memory. On both sides the pages are contiguous, `page_bytes` each, one per cache block. A
// slot of host memory is several consecutive pages: one for each cache block of an offloaded block. The caller converts slots to page
// numbers.
struct CopiedTensor {
  std::byte* device = nullptr;
  std::byte* host = nullptr;
  std::uint64_t page_bytes = 0;
  std::uint64_t num_device_pages = 0, num_host_pages = 0;
};

// One copy, from pages of the device to pages of host memory or back.
struct CopyJob {
  std::uint64_t id = 0;
  bool to_host = false;
  std::vector<std::uint64_t> device_pages, host_pages;  // parallel lists of page numbers
  std::vector<std::uint32_t> tensors = {};              // indices into the copier's tensors; empty: all tensors
  // After all pages are copied, `numbers[i]` is written to entry `marks[i]` of the copier's `marks`. A thread that reads this number there
  // also sees the copied bytes.
  std::vector<std::uint64_t> marks, numbers;
};

// A completed copy. `seconds` is the time of the copy itself, without waiting in the queue.
struct CopyCompletion {
  std::uint64_t id = 0;
  std::uint64_t bytes = 0;
  double seconds = 0.0;
};

// Copies blocks on a separate thread. All methods may be called from any thread.
class QUIRE_API BlockCopier {
 public:
  // The memory of the tensors and of `marks` must outlive the copier. `marks` has `num_marks` entries; it may be null if no job has marks.
  BlockCopier(std::vector<CopiedTensor> tensors, std::uint64_t* marks, std::uint64_t num_marks);
  // Finishes the job that is being copied, drops the queued jobs and joins the thread.
  ~BlockCopier();
  BlockCopier(const BlockCopier&) = delete;
  BlockCopier& operator=(const BlockCopier&) = delete;

  // Queues the job and returns immediately. Returns false, and copies nothing, if a page, tensor or mark is out of range, or if lists that
  // must be parallel differ in length.
  [[nodiscard]] bool submit(CopyJob job);
  // Returns the jobs of one direction that have ended since the last call for this direction.
  std::vector<CopyCompletion> take_over(bool to_host);
  // Waits until none of these jobs is queued or being copied.
  void wait(std::span<const std::uint64_t> ids);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
