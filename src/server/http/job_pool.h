#pragma once
// Runs work whose size clients control outside the server's thread. Lanes separate kinds of work: small jobs never wait for large jobs, and
// neither kind waits for a disk or another server. Small jobs run at a low priority, all others at the lowest.
//
// Jobs of the lanes `small` and `large` take turns (JobOrder). Several jobs of a lane may have started, but only the job that has the turn
// continues after a cancellation point. Work between two cancellation points, such as decoding an image in a library, is not interrupted;
// until its next cancellation point, such a job shares the CPU with the job that has the turn.
//
// Computing threads and the server's thread must never wait for a job, because a thread of low priority may be preempted anywhere, for as
// long as other threads compute. The pool therefore shares no lock with its workers: the server's thread assigns jobs to workers and wakes
// each worker with a semaphore. Finished jobs return through a lock-free list and an eventfd, because the queue of the io_context has a
// lock.
//
// States of a job: queued (by submit) -> started (by the server's thread, when a worker is free) -> done (by the worker) -> destroyed (by
// the server's thread, after `done`).
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

// Thrown by a job's cancellation point. Not a std::exception, so code that handles errors does not catch it.
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
    // Runs on a worker's thread, unless the client disconnects before the job starts. Throws only JobStopped, from the cancellation point.
    std::function<void(const CancellationPoint&)> work;
    Function done;                                         // called after `work` on the server's thread, which destroys both functions
    std::string client{};                                  // clients share the lane
    std::uint64_t num_bytes = 0;                           // bytes that the job reads
    std::shared_ptr<const std::atomic<bool>> cancelled{};  // set when the result is no longer needed; null: never
  };

  struct Options {
    std::uint32_t max_jobs = 1024;   // per lane, queued or started
    std::uint32_t num_fetching = 0;  // threads of the lane `fetch`
    bool low_priority = true;
    JobOrder::Time max_time = std::chrono::seconds(10);  // CPU time of a job in a lane whose jobs take turns
    std::uint64_t max_started_bytes = std::uint64_t{32} << 20;
  };

  // `io` must outlive this object.
  JobPool(boost::asio::io_context& io, const Options& options);
  // Stops started jobs at their next cancellation point and waits until they end. Does not call `done` for started or queued jobs.
  ~JobPool();
  JobPool(const JobPool&) = delete;
  JobPool& operator=(const JobPool&) = delete;

  // Queues a job, on the server's thread. Returns false, and calls neither function, if the lane is full or the client has too many jobs in
  // it.
  [[nodiscard]] bool submit(Lane lane, Job job);

  // Returns the number of jobs that are queued, started or done but not destroyed. Called on the server's thread.
  [[nodiscard]] std::uint32_t num_jobs(Lane lane) const;

 private:
  struct Worker;
  // Owned by the server's thread until the job starts, by the worker until the job is done, and then by the server's thread again.
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
    std::atomic<std::int64_t> begun_ns{-1};  // CPU time of the thread when the job began; -1: the job has not begun
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
  void check(Worker& worker, const Entry& entry) const;  // called by the job's cancellation point
  void push_done(Entry* entry);
  [[nodiscard]] Entry* take_done();
  void wait_for_done();
  void finish(std::unique_ptr<Entry> entry);

  const Options options_;
  boost::asio::posix::stream_descriptor event_;
  boost::asio::steady_timer timer_;
  bool is_ticking_ = false;
  // The unused value that reading the eventfd returns.
  std::uint64_t event_count_ = 0;
  std::deque<LaneState> lanes_;        // one per lane
  std::atomic<Entry*> done_{nullptr};  // newest first
  std::atomic<bool> stopping_{false};
};

}  // namespace quire
