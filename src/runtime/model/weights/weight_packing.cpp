// Reads tensors and packs them, several at a time: tasks are independent and run on any thread in any order. Each source is read in pieces
// and given back to the system, so that loading never holds a model twice.
#include "runtime/model/weights/weight_packing.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/model/weights/huge_pages.h"

namespace quire {
Result<void> pack_weights(const ModelFile& file, std::vector<PackTask>& tasks, ThreadPool& pool, void (*progress)(double)) {
  // The largest first, so that no thread starts one when the others have finished.
  std::ranges::sort(tasks, std::ranges::greater{}, [](const PackTask& task) { return task.source.data.size(); });
  std::uint64_t total = 1;
  for (const PackTask& task : tasks) total += task.source.data.size();
  std::atomic<std::uint64_t> done{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  Result<void> outcome;
  const auto caller = std::this_thread::get_id();
  pool.parallel_for(static_cast<std::uint32_t>(tasks.size()), 1, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    for (std::uint32_t i = begin; i < end && !failed; ++i) {
      const PackTask& task = tasks[i];
      auto packed = task.vector != nullptr ? pack_vector(file, task.source, task.picked, *task.vector)
                                           : pack_matrix(file, task.source, task.picked, task.may_reorder, *task.matrix);
      if (!packed) {
        const std::lock_guard lock(mutex);
        failed = true;
        outcome = std::move(packed);
        return;
      }
      const std::uint64_t so_far = done.fetch_add(task.source.data.size()) + task.source.data.size();
      if (progress != nullptr && std::this_thread::get_id() == caller) progress(static_cast<double>(so_far) / static_cast<double>(total));
    }
  });
  if (!outcome) return outcome;
  std::vector<MemoryRange> packed;
  for (const PackTask& task : tasks)
    if (task.matrix != nullptr)
      packed.push_back({reinterpret_cast<const std::byte*>(task.matrix->storage.data()), task.matrix->storage.size()});
  gather_in_huge_pages(std::move(packed), pool);
  if (progress != nullptr) progress(1.0);
  return {};
}

}  // namespace quire
