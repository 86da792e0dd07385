// One thread per lane, from the constructor to the destructor. The server's thread pushes jobs and takes finished ones; a lane's thread
// runs them one after another. Between them are only the lock-free queue, the semaphore and the list of finished jobs: a thread of low
// priority may be stopped anywhere, and nobody must wait for it then.
#include "server/http/job_pool.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/thread_nice.h"

namespace quire {

namespace {

// Of the calling thread. Beside computing threads on all cores a large job gets about a seventieth of a core. SCHED_IDLE would be a 340th:
// too little for good requests of 100 KB on a busy machine.
void lower_priority(JobPool::Lane lane) {
  constexpr int kLargeNice = 19;
  set_thread_nice(lane == JobPool::Lane::small ? kNiceBeside : kLargeNice);
}

int make_event() {
  const int event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  QUIRE_CHECK(event >= 0, "no eventfd: the process is out of file descriptors before it serves");
  return event;
}

}  // namespace

JobPool::JobPool(boost::asio::io_context& io, const Options& options)
    : options_(options),
      event_(io, make_event()),
      lanes_{LaneState(options.max_jobs), LaneState(options.max_jobs), LaneState(options.max_jobs)} {
  for (const Lane lane : {Lane::small, Lane::large, Lane::disk})
    lanes_[static_cast<std::size_t>(lane)].thread = std::thread([this, lane] { run(lane); });
  wait_for_done();
}

JobPool::~JobPool() {
  stopping_.store(true);
  // Wakes it once more, with no job: it sees stopping_ before it looks for one.
  for (LaneState& lane : lanes_) sem_post(&lane.ready);
  for (LaneState& lane : lanes_) {
    lane.thread.join();
    lane.queue.consume_all([](Job* job) { delete job; });
  }
  for (Job* job = take_done(); job != nullptr;) delete std::exchange(job, job->next);
}

bool JobPool::submit(Lane lane, Function work, Function done) {
  LaneState& state = lanes_[static_cast<std::size_t>(lane)];
  if (state.num_jobs >= options_.max_jobs) return false;
  auto job = std::make_unique<Job>(Job{std::move(work), std::move(done), lane});
  QUIRE_CHECK(state.queue.push(job.get()), "the queue holds max_jobs");
  job.release();  // the lane's thread has it
  ++state.num_jobs;
  sem_post(&state.ready);
  return true;
}

void JobPool::run(Lane lane) {
  if (options_.low_priority) lower_priority(lane);
  LaneState& state = lanes_[static_cast<std::size_t>(lane)];
  while (true) {
    while (sem_wait(&state.ready) != 0) {  // interrupted by a signal
    }
    if (stopping_.load()) return;
    Job* job = nullptr;
    QUIRE_CHECK(state.queue.pop(job), "the semaphore counts the jobs");
    // It must not throw: the caller has caught everything within.
    job->work();
    push_done(job);
  }
}

void JobPool::push_done(Job* job) {
  job->next = done_.load();
  while (!done_.compare_exchange_weak(job->next, job)) {
  }
  const std::uint64_t one = 1;
  // Cannot fail but where the counter is full, and then the server's thread is awake anyway.
  [[maybe_unused]] const ssize_t written = write(event_.native_handle(), &one, sizeof one);
}

// Oldest first.
JobPool::Job* JobPool::take_done() {
  Job* oldest = nullptr;
  for (Job* job = done_.exchange(nullptr); job != nullptr;) {
    Job* const older = std::exchange(job->next, oldest);
    oldest = std::exchange(job, older);
  }
  return oldest;
}

void JobPool::wait_for_done() {
  event_.async_read_some(boost::asio::buffer(&event_count_, sizeof event_count_), [this](boost::system::error_code code, std::size_t) {
    if (code) return;
    for (Job* next = take_done(); next != nullptr;) {
      const std::unique_ptr<Job> job(std::exchange(next, next->next));
      --lanes_[static_cast<std::size_t>(job->lane)].num_jobs;
      job->done();
    }
    wait_for_done();
  });
}

}  // namespace quire
