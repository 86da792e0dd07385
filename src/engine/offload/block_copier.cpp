// Copies blocks for vLLM's workers on CPU. Each copier has one thread, which runs the queued jobs in order. The thread must not access the
// device's memory before a job is submitted or after its end is reported. It never holds the mutex while it copies. Callers on any thread
// only queue jobs and collect results.
#include "quire/block_copier.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace quire {

// State that the copying thread shares with the callers. The copying thread copies without holding the mutex.
struct BlockCopier::State {
  std::vector<CopiedTensor> tensors;
  std::uint64_t* marks = nullptr;
  std::uint64_t num_marks = 0;

  std::mutex mutex;
  std::condition_variable changed;
  // Guarded by `mutex`, like all members below.
  std::deque<CopyJob> jobs;
  std::optional<std::uint64_t> current;
  std::array<std::vector<CopyCompletion>, 2> over;  // by to_host
  bool stops = false;
  std::thread thread;

  [[nodiscard]] bool is_known(const CopyJob& job) const {
    const auto below = [](const std::vector<std::uint64_t>& values, std::uint64_t limit) {
      return std::ranges::all_of(values, [limit](std::uint64_t value) { return value < limit; });
    };
    return job.device_pages.size() == job.host_pages.size() && job.marks.size() == job.numbers.size() && below(job.marks, num_marks) &&
           std::ranges::all_of(job.tensors, [this](std::uint32_t tensor) { return tensor < tensors.size(); }) &&
           std::ranges::all_of(tensors, [&](const CopiedTensor& tensor) {
             return below(job.device_pages, tensor.num_device_pages) && below(job.host_pages, tensor.num_host_pages);
           });
  }

  template <class Do>
  void for_tensors_of(const CopyJob& job, Do&& act) const {
    if (job.tensors.empty()) std::ranges::for_each(tensors, act);
    for (const std::uint32_t number : job.tensors) act(tensors[number]);
  }

  void copy(const CopyJob& job) const {
    for_tensors_of(job, [&](const CopiedTensor& tensor) {
      for (std::size_t i = 0; i < job.device_pages.size(); ++i) {
        std::byte* const device = tensor.device + job.device_pages[i] * tensor.page_bytes;
        std::byte* const host = tensor.host + job.host_pages[i] * tensor.page_bytes;
        std::memcpy(job.to_host ? host : device, job.to_host ? device : host, tensor.page_bytes);
      }
    });
    for (std::size_t i = 0; i < job.marks.size(); ++i) __atomic_store_n(marks + job.marks[i], job.numbers[i], __ATOMIC_RELEASE);
  }

  [[nodiscard]] std::uint64_t bytes_of(const CopyJob& job) const {
    std::uint64_t bytes = 0;
    for_tensors_of(job, [&](const CopiedTensor& tensor) { bytes += tensor.page_bytes * job.device_pages.size(); });
    return bytes;
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return stops || !jobs.empty(); });
      if (stops) return;
      const CopyJob job = std::move(jobs.front());
      jobs.pop_front();
      current = job.id;
      lock.unlock();
      const auto begin = std::chrono::steady_clock::now();
      copy(job);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      lock.lock();
      current.reset();
      over[job.to_host ? 1 : 0].push_back({.id = job.id, .bytes = bytes_of(job), .seconds = took.count()});
      changed.notify_all();
    }
  }
};

BlockCopier::BlockCopier(std::vector<CopiedTensor> tensors, std::uint64_t* marks, std::uint64_t num_marks)
    : state_(std::make_unique<State>()) {
  state_->tensors = std::move(tensors);
  state_->marks = marks;
  state_->num_marks = num_marks;
  state_->thread = std::thread([&one = *state_] { one.run(); });
}

BlockCopier::~BlockCopier() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stops = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

bool BlockCopier::submit(CopyJob job) {
  if (!state_->is_known(job)) return false;
  const std::lock_guard lock(state_->mutex);
  state_->jobs.push_back(std::move(job));
  state_->changed.notify_all();
  return true;
}

std::vector<CopyCompletion> BlockCopier::take_over(bool to_host) {
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->over[to_host ? 1 : 0], {});
}

void BlockCopier::wait(std::span<const std::uint64_t> ids) {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] {
    return std::ranges::none_of(ids, [&](std::uint64_t id) {
      return state_->current == id || std::ranges::any_of(state_->jobs, [id](const CopyJob& job) { return job.id == id; });
    });
  });
}

}  // namespace quire
