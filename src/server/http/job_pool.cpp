// Implements the pool. The server's thread queues jobs, assigns each to a free worker, and decides every few milliseconds which started job
// has the turn. A worker's thread starts with its first job and ends when the pool is destroyed. Workers and the server's thread share
// semaphores, flags and the list of finished jobs, but no lock.
#include "server/http/job_pool.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <ctime>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/thread_nice.h"

namespace quire {

namespace {

// The minimum length of a turn.
constexpr std::chrono::milliseconds kTick{10};
// Maximum numbers of started jobs. Each started job costs a thread and the memory of its parsed values. One client has at most half of the
// threads.
constexpr std::uint32_t kMaxSmallStarted = 16, kMaxLargeStarted = 32;

// Lowers the priority of the calling thread. While other threads use all cores, a large job gets about 1/70 of a core. With SCHED_IDLE it
// would get 1/340, which is too little for valid requests of 100 KB on a busy machine.
void lower_priority(JobPool::Lane lane) {
  constexpr int kLargeNice = 19;
  set_thread_nice(lane == JobPool::Lane::small ? kBackgroundNice : kLargeNice);
}

int make_event() {
  const int event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  QUIRE_CHECK(event >= 0, "a file descriptor is available for the eventfd");
  return event;
}

// Returns the CPU time that a thread has used.
std::int64_t used_ns(clockid_t clock) {
  timespec used{};
  if (clock_gettime(clock, &used) != 0) return 0;
  return std::int64_t{used.tv_sec} * 1'000'000'000 + used.tv_nsec;
}

void wait_for(sem_t& semaphore) {
  while (sem_wait(&semaphore) != 0) {  // a signal interrupted the wait
  }
}

bool is_cancelled(const JobPool::Job& job) {
  return job.cancelled != nullptr && job.cancelled->load();
}

}  // namespace

JobPool::JobPool(boost::asio::io_context& io, const Options& options) : options_(options), event_(io, make_event()), timer_(io) {
  for (const auto& [started, turns] :
       {std::pair(kMaxSmallStarted, true), {kMaxLargeStarted, true}, {1U, false}, {options.num_fetching, false}})
    lanes_.emplace_back(
        JobOrder::Limits{.max_jobs = options.max_jobs, .max_started = started, .max_started_bytes = options.max_started_bytes}, turns);
  wait_for_done();
}

JobPool::~JobPool() {
  stopping_.store(true);
  for (LaneState& state : lanes_)
    for (Worker& worker : state.workers) {
      worker.paused.store(false);
      sem_post(&worker.resumed);
      // Wakes the worker even if it has no job: it checks `stopping_` before it starts a job.
      sem_post(&worker.ready);
    }
  for (LaneState& state : lanes_)
    for (Worker& worker : state.workers) worker.thread.join();
  // Each worker still owns its entry, because finish() has not run for it.
  for (LaneState& state : lanes_)
    for (Worker& worker : state.workers) delete worker.entry;
}

std::uint32_t JobPool::num_jobs(Lane which) const {
  return static_cast<std::uint32_t>(lanes_[static_cast<std::size_t>(which)].order.size());
}

bool JobPool::submit(Lane which, Job job) {
  LaneState& state = lane(which);
  QUIRE_CHECK(state.max_workers > 0, "a lane that receives jobs has at least one thread");
  const auto id = state.order.add(job.client, job.num_bytes);
  if (!id) return false;
  state.entries.emplace(*id, std::make_unique<Entry>(Entry{.job = std::move(job), .lane = which, .id = *id}));
  start_jobs(which);
  return true;
}

JobPool::Worker* JobPool::free_worker(Lane which) {
  LaneState& state = lane(which);
  for (Worker& worker : state.workers)
    if (worker.entry == nullptr) return &worker;
  if (state.workers.size() >= state.max_workers) return nullptr;
  Worker& worker = state.workers.emplace_back(which);
  try {
    worker.thread = std::thread([this, &worker] { run(worker); });
  } catch (const std::system_error&) {
    // The process cannot start more threads, so the job waits for an existing worker.
    state.workers.pop_back();
    QUIRE_CHECK(!state.workers.empty(), "the process can start at least one thread for each lane");
    return nullptr;
  }
  return &worker;
}

void JobPool::start_jobs(Lane which) {
  LaneState& state = lane(which);
  while (!state.entries.empty()) {
    Worker* const worker = free_worker(which);
    if (worker == nullptr) break;
    const auto id = state.order.next();
    if (!id) break;
    const auto at = state.entries.find(*id);
    worker->entry = at->second.release();
    state.entries.erase(at);
    worker->entry->worker = worker;
    worker->begun_ns.store(-1);
    worker->paused.store(state.takes_turns);
    state.started.emplace(*id, worker);
    sem_post(&worker->ready);
  }
  share_turn(state);
}

// Lets the job that has the turn run, and pauses the other started jobs. A job whose client has disconnected is not paused, so that it
// reaches its next cancellation point and ends.
void JobPool::share_turn(LaneState& state) {
  if (!state.takes_turns) return;
  const auto turn = state.order.turn();
  for (const auto& [id, worker] : state.started) {
    const bool paused = id != turn && !is_cancelled(worker->entry->job);
    if (worker->paused.exchange(paused) && !paused) sem_post(&worker->resumed);
  }
  if (state.started.size() < 2 || is_ticking_) return;
  is_ticking_ = true;
  timer_.expires_after(kTick);
  timer_.async_wait([this](boost::system::error_code code) {
    if (code) return;
    is_ticking_ = false;
    tick();
  });
}

void JobPool::measure(LaneState& state) {
  for (const auto& [id, worker] : state.started) {
    const std::int64_t begun = worker->begun_ns.load();
    clockid_t clock{};
    if (begun < 0 || pthread_getcpuclockid(worker->thread.native_handle(), &clock) != 0) continue;
    state.order.charge(id, JobOrder::Time(used_ns(clock) - begun));
  }
}

void JobPool::tick() {
  for (LaneState& state : lanes_) {
    measure(state);
    share_turn(state);
  }
}

void JobPool::run(Worker& worker) {
  if (options_.low_priority) lower_priority(worker.lane);
  while (true) {
    wait_for(worker.ready);
    if (stopping_.load()) return;
    Entry* const entry = worker.entry;
    worker.begun_ns.store(used_ns(CLOCK_THREAD_CPUTIME_ID));
    const CancellationPoint cancellation = [this, &worker, entry] { check(worker, *entry); };
    try {
      cancellation();  // waits for the turn, so that only one job of a lane runs
      entry->job.work(cancellation);
    } catch (const JobStopped&) {
      // The job ends without a result; its `done` function still runs.
    }
    push_done(entry);
  }
}

void JobPool::check(Worker& worker, const Entry& entry) const {
  using Reason = JobStopped::Reason;
  const auto ends = [&] { return stopping_.load() || is_cancelled(entry.job); };
  while (worker.paused.load() && !ends()) wait_for(worker.resumed);
  if (stopping_.load()) throw JobStopped{Reason::server_stops};
  if (is_cancelled(entry.job)) throw JobStopped{Reason::client_gone};
  const JobOrder::Time used(used_ns(CLOCK_THREAD_CPUTIME_ID) - worker.begun_ns.load());
  if (used > options_.max_time) throw JobStopped{Reason::out_of_time};
}

void JobPool::push_done(Entry* entry) {
  entry->next = done_.load();
  while (!done_.compare_exchange_weak(entry->next, entry)) {
  }
  const std::uint64_t one = 1;
  // The write fails only if the counter is full. The server's thread is then already being woken.
  [[maybe_unused]] const ssize_t written = write(event_.native_handle(), &one, sizeof one);
}

// Removes and returns all finished jobs, oldest first.
JobPool::Entry* JobPool::take_done() {
  Entry* oldest = nullptr;
  for (Entry* entry = done_.exchange(nullptr); entry != nullptr;) {
    Entry* const older = std::exchange(entry->next, oldest);
    oldest = std::exchange(entry, older);
  }
  return oldest;
}

void JobPool::wait_for_done() {
  event_.async_read_some(boost::asio::buffer(&event_count_, sizeof event_count_), [this](boost::system::error_code code, std::size_t) {
    if (code) return;
    for (Entry* next = take_done(); next != nullptr;) {
      std::unique_ptr<Entry> entry(std::exchange(next, next->next));
      finish(std::move(entry));
    }
    wait_for_done();
  });
}

void JobPool::finish(std::unique_ptr<Entry> entry) {
  LaneState& state = lane(entry->lane);
  measure(state);
  entry->worker->entry = nullptr;
  state.started.erase(entry->id);
  state.order.end(entry->id);
  start_jobs(entry->lane);
  entry->job.done();
}

}  // namespace quire
