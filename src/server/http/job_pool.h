#pragma once
// Work whose size a client controls, off the server's thread. There are lanes with a thread each, so small jobs never wait behind large
// ones, and neither behind a disk: small jobs run at a low priority, the others at the lowest. What waits for another server has a lane of
// several threads.
//
// Computing threads must never wait for either. A thread of low priority can lose its core anywhere, for as long as others compute, so it
// must hold no lock that they or the server's thread take: the queues are lock-free, and results come back through an eventfd instead
// of the io_context's locked queue.
//
// States of a job: queued (submit) -> running (its lane's thread) -> done (that thread) -> gone (server's thread, after `done`).
#include <semaphore.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/lockfree/spsc_queue.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>

namespace quire {

class JobPool {
 public:
  enum class Lane : std::uint8_t { small, large, disk, fetch };
  using Function = std::function<void()>;

  struct Options {
    std::uint32_t max_jobs = 1024;   // per thread, queued or running
    std::uint32_t num_fetching = 0;  // threads of the lane `fetch`
    bool low_priority = true;
  };

  // `io` must outlive this.
  JobPool(boost::asio::io_context& io, const Options& options);
  // Waits for the jobs that run; neither they nor those still queued are `done`.
  ~JobPool();
  JobPool(const JobPool&) = delete;
  JobPool& operator=(const JobPool&) = delete;

  // Server's thread. `work` runs on the lane's thread and must not throw; then `done` runs on the server's, and both are destroyed there.
  // False, and neither runs: the lane is full.
  [[nodiscard]] bool submit(Lane lane, Function work, Function done);

  // Server's thread: queued, running or not yet done.
  [[nodiscard]] std::uint32_t num_jobs(Lane lane) const;

 private:
  // Owned by one side at a time, as its state says.
  struct Job {
    Function work, done;
    std::size_t thread;
    Job* next = nullptr;
  };
  struct Worker {
    Worker(Lane of, std::uint32_t max_jobs) : lane(of), queue(max_jobs) { sem_init(&ready, 0, 0); }
    ~Worker() { sem_destroy(&ready); }
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;
    const Lane lane;
    boost::lockfree::spsc_queue<Job*> queue;
    sem_t ready;
    std::uint32_t num_jobs = 0;  // server's thread only
    std::thread thread;
  };

  // The one with the fewest jobs.
  [[nodiscard]] std::size_t worker_for(Lane lane) const;
  void run(Worker& worker);
  void push_done(Job* job);
  [[nodiscard]] Job* take_done();
  void wait_for_done();

  const Options options_;
  boost::asio::posix::stream_descriptor event_;
  // Read from the event, and of no further use.
  std::uint64_t event_count_ = 0;
  std::deque<Worker> workers_;       // those of a lane side by side
  std::atomic<Job*> done_{nullptr};  // newest first
  std::atomic<bool> stopping_{false};
};

}  // namespace quire
