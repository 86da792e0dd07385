#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/thread_nice.h"
#include "runtime/tier/block_queues.h"

namespace quire {
namespace {

constexpr std::uint32_t kMaxIoThreads = 4;

// Returns whether all bytes were read or written. A short read or write counts as a failure: the disk is nearly full, or the file was
// truncated.
bool move_block(int descriptor, const BlockIo& io) {
  ssize_t moved = -1;
  do {
    const auto offset = static_cast<off_t>(io.offset);
    moved = io.is_write ? pwrite(descriptor, io.bytes.data(), io.bytes.size(), offset)
                        : pread(descriptor, io.bytes.data(), io.bytes.size(), offset);
  } while (moved < 0 && errno == EINTR);
  return moved == static_cast<ssize_t>(io.bytes.size());
}

// Makes blocking calls on up to four threads, for kernels and containers without io_uring.
class ThreadQueue final : public BlockQueue {
 public:
  ThreadQueue(int descriptor, std::uint32_t depth) : descriptor_(descriptor) {
    for (std::uint32_t i = 0; i < std::min(depth, kMaxIoThreads); ++i) threads_.emplace_back([this] { run(); });
  }
  ~ThreadQueue() override {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    wanted_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void submit(const BlockIo& io) override {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(io);
    }
    wanted_.notify_one();
  }

  void collect(bool wait, std::vector<BlockIoCompletion>& over) override {
    std::unique_lock lock(mutex_);
    if (wait) ended_.wait(lock, [this] { return is_woken_ || !over_.empty(); });
    is_woken_ = false;
    over.insert(over.end(), over_.begin(), over_.end());
    over_.clear();
  }

  void wake() override {
    {
      const std::lock_guard lock(mutex_);
      is_woken_ = true;
    }
    ended_.notify_one();
  }

 private:
  void run() {
    set_thread_nice(kBackgroundNice);
    std::unique_lock lock(mutex_);
    for (;;) {
      wanted_.wait(lock, [this] { return stops_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const BlockIo io = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      const bool is_done = move_block(descriptor_, io);
      lock.lock();
      over_.push_back({io.tag, is_done});
      ended_.notify_one();
    }
  }

  const int descriptor_;
  std::mutex mutex_;
  std::condition_variable wanted_, ended_;
  std::deque<BlockIo> waiting_;
  std::vector<BlockIoCompletion> over_;
  bool is_woken_ = false;
  bool stops_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<BlockQueue> make_thread_queue(int descriptor, std::uint32_t depth) {
  return std::make_unique<ThreadQueue>(descriptor, depth);
}

}  // namespace quire
