// Keeps many blocks in flight on one thread with io_uring. uring_queue_absent.cpp replaces this file if liburing is not installed. Used by
// the thread of one I/O worker, except for wake(), which signals an eventfd that the ring polls. Every block has one tag and one
// completion; a short read or write counts as failed.
#include <liburing.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>

#include "base/check.h"
#include "runtime/tier/block_queues.h"

namespace quire {
namespace {

constexpr std::uint64_t kWakeTag = UINT64_MAX;

class UringQueue final : public BlockQueue {
 public:
  UringQueue(int descriptor, std::uint32_t depth) : descriptor_(descriptor), bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), sizes_(depth) {
    is_open_ = bell_ >= 0 && io_uring_queue_init(depth + 1, &ring_, 0) == 0;
    if (is_open_) listen();
  }
  ~UringQueue() override {
    if (is_open_) io_uring_queue_exit(&ring_);
    if (bell_ >= 0) close(bell_);
  }
  UringQueue(const UringQueue&) = delete;
  UringQueue& operator=(const UringQueue&) = delete;

  [[nodiscard]] bool is_open() const { return is_open_; }

  void submit(const BlockIo& io) override {
    QUIRE_CHECK(io.tag < sizes_.size(), "the queue has room for the request");
    sizes_[io.tag] = io.bytes.size();
    io_uring_sqe* entry = next_entry();
    const auto size = static_cast<unsigned>(io.bytes.size());
    if (io.is_write)
      io_uring_prep_write(entry, descriptor_, io.bytes.data(), size, io.offset);
    else
      io_uring_prep_read(entry, descriptor_, io.bytes.data(), size, io.offset);
    io_uring_sqe_set_data64(entry, io.tag);
    send(0);
  }

  void collect(bool wait, std::vector<BlockIoCompletion>& over) override {
    if (wait) send(1);
    unsigned head = 0;
    unsigned num_seen = 0;
    bool is_woken = false;
    io_uring_cqe* end = nullptr;
    io_uring_for_each_cqe(&ring_, head, end) {
      ++num_seen;
      const std::uint64_t tag = io_uring_cqe_get_data64(end);
      if (tag == kWakeTag)
        is_woken = true;
      else
        over.push_back({static_cast<std::uint32_t>(tag), end->res >= 0 && static_cast<std::size_t>(end->res) == sizes_[tag]});
    }
    io_uring_cq_advance(&ring_, num_seen);
    if (!is_woken) return;
    eventfd_t rung = 0;
    eventfd_read(bell_, &rung);
    listen();
  }

  void wake() override { eventfd_write(bell_, 1); }

 private:
  io_uring_sqe* next_entry() {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    QUIRE_CHECK(entry != nullptr, "the queue has room for the request");
    return entry;
  }
  void listen() {
    io_uring_sqe* entry = next_entry();
    io_uring_prep_poll_add(entry, bell_, POLLIN);
    io_uring_sqe_set_data64(entry, kWakeTag);
    send(0);
  }
  // Submits the prepared entries to the kernel. If the kernel has no memory for the entries, the next call submits them.
  void send(unsigned num_awaited) {
    int sent = 0;
    do sent = io_uring_submit_and_wait(&ring_, num_awaited);
    while (sent == -EINTR || (num_awaited > 0 && (sent == -EAGAIN || sent == -EBUSY)));
    QUIRE_CHECK(sent >= 0 || sent == -EAGAIN || sent == -EBUSY, "io_uring accepts requests and returns results");
  }

  const int descriptor_;
  const int bell_;
  std::vector<std::size_t> sizes_;  // by tag
  io_uring ring_{};
  bool is_open_ = false;
};

}  // namespace

std::unique_ptr<BlockQueue> make_uring_queue(int descriptor, std::uint32_t depth) {
  auto queue = std::make_unique<UringQueue>(descriptor, depth);
  if (!queue->is_open()) return nullptr;
  return queue;
}

}  // namespace quire
