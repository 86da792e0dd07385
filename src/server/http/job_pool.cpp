// The threads that work off what would keep the server from its clients. Its threads live from the constructor to the destructor. The
// server's thread pushes jobs and takes finished ones; each other thread runs its own one after another. Between them are only the
// lock-free queue, the semaphore and the list of finished jobs: a thread of low priority may be stopped anywhere, and nobody must wait for
// it then.
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

JobPool::JobPool(boost::asio::io_context& io, const Options& options) : options_(options), event_(io, make_event()) {
  for (const Lane lane : {Lane::small, Lane::large, Lane::disk}) workers_.emplace_back(lane, options.max_jobs);
  for (std::uint32_t i = 0; i < options.num_fetching; ++i) workers_.emplace_back(Lane::fetch, options.max_jobs);
  for (Worker& worker : workers_) worker.thread = std::thread([this, &worker] { run(worker); });
  wait_for_done();
}

JobPool::~JobPool() {
  stopping_.store(true);
  // Wakes it once more, with no job: it sees stopping_ before it looks for one.
  for (Worker& worker : workers_) sem_post(&worker.ready);
  for (Worker& worker : workers_) {
    worker.thread.join();
    worker.queue.consume_all([](Job* job) { delete job; });
  }
  for (Job* job = take_done(); job != nullptr;) delete std::exchange(job, job->next);
}

std::size_t JobPool::worker_for(Lane lane) const {
  std::size_t best = workers_.size();
  for (std::size_t i = 0; i < workers_.size(); ++i)
    if (workers_[i].lane == lane && (best == workers_.size() || workers_[i].num_jobs < workers_[best].num_jobs)) best = i;
  QUIRE_CHECK(best < workers_.size(), "a lane without a thread");
  return best;
}

std::uint32_t JobPool::num_jobs(Lane lane) const {
  std::uint32_t sum = 0;
  for (const Worker& worker : workers_) sum += worker.lane == lane ? worker.num_jobs : 0;
  return sum;
}

bool JobPool::submit(Lane lane, Function work, Function done) {
  const std::size_t number = worker_for(lane);
  Worker& worker = workers_[number];
  if (worker.num_jobs >= options_.max_jobs) return false;
  auto job = std::make_unique<Job>(Job{std::move(work), std::move(done), number});
  QUIRE_CHECK(worker.queue.push(job.get()), "the queue holds max_jobs");
  job.release();  // the thread has it
  ++worker.num_jobs;
  sem_post(&worker.ready);
  return true;
}

void JobPool::run(Worker& worker) {
  if (options_.low_priority) lower_priority(worker.lane);
  while (true) {
    while (sem_wait(&worker.ready) != 0) {  // interrupted by a signal
    }
    if (stopping_.load()) return;
    Job* job = nullptr;
    QUIRE_CHECK(worker.queue.pop(job), "the semaphore counts the jobs");
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
      --workers_[job->thread].num_jobs;
      job->done();
    }
    wait_for_done();
  });
}

}  // namespace quire
