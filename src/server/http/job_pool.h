#pragma once
// Runs work off the server's thread if clients control its size. Lanes keep kinds of work apart: small jobs never wait for large ones, and
// neither kind waits for a disk or another server. Small jobs run at a low priority, all others at the lowest.
//
// Jobs of the lanes `small` and `large` take turns (JobOrder). Several may have started, but only the job that has the turn continues after
// a cancellation point. Work between two cancellation points, such as a library that decodes an image, is not interrupted; the kernel then
// shares the core.
//
// Computing threads and the server's thread must never wait for a job: a thread of low priority can lose its core anywhere, for as long as
// others compute. So no lock is shared with it. The server's thread assigns jobs to workers, and wakes each worker by a semaphore. Results
// come back through a lock-free list and an eventfd, instead of the io_context's locked queue.
//
// States of a job: queued (submit) -> started (server's thread, when a worker is free) -> done (that worker) -> gone (server's thread,
// after `done`).
#include <semaphore.h>

#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "quire/base/cancellation_point.h"
#include "server/http/job_order.h"

namespace quire {

// Thrown by a job's cancellation point. It is not a std::exception, so code that handles errors does not catch it.
struct JobStopped {
  enum class Reason : std::uint8_t { client_gone, out_of_time, server_stops };
  Reason why;
};

class JobPool {
 public:
  enum class Lane : std::uint8_t { small, large, disk, fetch };
  static constexpr std::size_t kNumLanes = 4;
  using Function = std::function<void()>;

  struct Job {
    // Runs on a worker's thread, unless the client has disconnected before. It may throw only JobStopped, from the cancellation point.
    std::function<void(const CancellationPoint&)> work;
    Function done;                                         // then called on the server's thread, which destroys both functions
    std::string client{};                                  // shares the lane with other clients
    std::uint64_t num_bytes = 0;                           // bytes that the job reads
    std::shared_ptr<const std::atomic<bool>> cancelled{};  // set when the result is no longer needed; null: never
  };

  struct Options {
    std::uint32_t max_jobs = 1024;   // per lane, queued or started
    std::uint32_t num_fetching = 0;  // threads of the lane `fetch`
    bool low_priority = true;
    JobOrder::Time max_time = std::chrono::seconds(10);  // processor time of one job that takes turns
    std::uint64_t max_started_bytes = std::uint64_t{32} << 20;
  };

  // `io` must outlive this.
  JobPool(boost::asio::io_context& io, const Options& options);
  // Stops started jobs at their next cancellation point and waits for them. `done` is called neither for these jobs nor for queued ones.
  ~JobPool();
  JobPool(const JobPool&) = delete;
  JobPool& operator=(const JobPool&) = delete;

  // Called on the server's thread. Returns false, and calls neither function, if the lane is full or this client has its share of it.
  [[nodiscard]] bool submit(Lane lane, Job job);

  // Called on the server's thread. Returns the number of jobs that are queued, started or not yet done.
  [[nodiscard]] std::uint32_t num_jobs(Lane lane) const;

 private:
  struct Worker;
  // The server's thread owns the entry until the job starts, then its worker, and the server's thread again when the job is done.
  struct Entry {
    Job job;
    Lane lane;
    JobOrder::Id id;
    Worker* worker = nullptr;
    Entry* next = nullptr;
  };
  struct Worker {
    explicit Worker(Lane of) : lane(of) {
      sem_init(&ready, 0, 0);
      sem_init(&resumed, 0, 0);
    }
    ~Worker() {
      sem_destroy(&ready);
      sem_destroy(&resumed);
    }
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;
    const Lane lane;
    sem_t ready;    // posted when `entry` has a job
    sem_t resumed;  // posted when `paused` is cleared, even if the worker does not wait
    std::atomic<bool> paused{false};
    std::atomic<std::int64_t> begun_ns{-1};  // the thread's processor time when the job began; -1: the job has not begun
    Entry* entry = nullptr;                  // null: the worker is free. Set on the server's thread
    std::thread thread;
  };
  struct LaneState {
    explicit LaneState(const JobOrder::Limits& limits, bool turns) : order(limits), takes_turns(turns), max_workers(limits.max_started) {}
    JobOrder order;
    const bool takes_turns;
    const std::uint32_t max_workers;
    std::unordered_map<JobOrder::Id, std::unique_ptr<Entry>> entries;  // queued jobs
    std::unordered_map<JobOrder::Id, Worker*> started;
    std::deque<Worker> workers;
  };

  [[nodiscard]] LaneState& lane(Lane which) { return lanes_[static_cast<std::size_t>(which)]; }
  [[nodiscard]] Worker* free_worker(Lane which);
  void start_jobs(Lane which);
  void share_turn(LaneState& state);
  void measure(LaneState& state);
  void tick();

  void run(Worker& worker);
  void check(Worker& worker, const Entry& entry) const;  // the job's cancellation point
  void push_done(Entry* entry);
  [[nodiscard]] Entry* take_done();
  void wait_for_done();
  void finish(std::unique_ptr<Entry> entry);

  const Options options_;
  boost::asio::posix::stream_descriptor event_;
  boost::asio::steady_timer timer_;
  bool is_ticking_ = false;
  // The value read from the eventfd; it is not used.
  std::uint64_t event_count_ = 0;
  std::deque<LaneState> lanes_;        // [lane]
  std::atomic<Entry*> done_{nullptr};  // newest first
  std::atomic<bool> stopping_{false};
};

}  // namespace quire
