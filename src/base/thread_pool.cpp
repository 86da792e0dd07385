// A thread pool for loops that take microseconds. Called by one thread at a time: the engine's thread or, within a task, the pool thread
// that leads the task. Threads take chunks from one counter, so a thread that has lost its core delays only its current chunk. A call takes
// no lock and allocates no memory. Waiting threads spin for some microseconds and then sleep.
#include "base/thread_pool.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/check.h"

// States of a job: none -> published (the ticket contains the number of chunks left) -> all chunks taken (the ticket's low half is 0) ->
// done (pending is 0). The caller publishes. A thread that has taken a chunk by changing the ticket may read the job, because the caller
// cannot return from run() and write the next job before that chunk is done. Threads that take no chunk access only the ticket.
//
// States of a task, and the call that moves it:
//   none -> offered    start()
//   offered -> led     one thread, of the pool or in assist() or join(): it runs the task function, which calls run() for its parts
//   led -> ended       the same thread, when the task function returns
//   ended -> none      join()
// The leader is thread 0 of each part. If a pool thread leads, the caller of start() helps under that thread's number, which is then free.

namespace quire {
namespace {

constexpr std::uint64_t kChunkBits = 24;
constexpr std::uint64_t kChunkMask = (std::uint64_t{1} << kChunkBits) - 1;
constexpr std::chrono::microseconds kSpin{30};

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until `ready()` returns true, and returns true; returns false after kSpin.
template <class Ready>
bool spin_until(Ready ready) {
  constexpr int kPausesPerPoll = 16;
  for (int i = 0; i < kPausesPerPoll; ++i) {
    if (ready()) return true;
    relax();
  }
  const auto end = std::chrono::steady_clock::now() + kSpin;
  while (std::chrono::steady_clock::now() < end) {
    for (int i = 0; i < kPausesPerPoll; ++i) {
      if (ready()) return true;
      relax();
    }
  }
  return false;
}

}  // namespace

struct ThreadPool::State {
  // A job. The caller writes it before it publishes the job in the ticket, and helpers read it after they have read the ticket.
  struct Job {
    Function function = nullptr;
    void* context = nullptr;
    std::uint32_t count = 0;
    std::uint32_t grain = 1;
    std::uint32_t num_chunks = 0;
  };

  explicit State(std::uint32_t num) : num_threads(num) {
    threads.reserve(num - 1);
    for (std::uint32_t i = 1; i < num; ++i) threads.emplace_back([this, i] { work(i); });
  }

  ~State() {
    stopping.store(true);
    wake();
    for (std::thread& thread : threads) thread.join();
  }

  [[nodiscard]] bool has_chunks() const { return (ticket.load() & kChunkMask) != 0; }

  // Runs chunks until none is left.
  void help(std::uint32_t thread) {
    std::uint64_t seen = ticket.load();
    // If the ticket has already moved on to another job, the exchange fails and the thread reads the ticket again. It therefore never takes
    // a chunk of a job that it has not read.
    while ((seen & kChunkMask) != 0) {
      if (!ticket.compare_exchange_weak(seen, seen - 1)) continue;
      const std::uint32_t chunk = job.num_chunks - static_cast<std::uint32_t>(seen & kChunkMask);
      run_chunk(chunk, thread);
      seen = ticket.load();
    }
  }

  [[nodiscard]] bool is_offered() const { return stage.load() == kOffered; }
  [[nodiscard]] bool has_ended() const { return stage.load() == kEnded; }

  // Runs the task if it is offered, and returns true. Returns false if another thread leads the task, or if there is no task. The exchange
  // lets exactly one thread move the task from offered to led.
  bool lead(std::uint32_t thread) {
    std::uint32_t expected = kOffered;
    if (!stage.compare_exchange_strong(expected, kLed + thread)) return false;
    task(context);
    stage.store(kEnded);
    if (sleepers.load() != 0) wake();
    return true;
  }

  template <class Over>
  void assist(Over over) {
    lead(0);
    const auto ready = [&] { return has_chunks() || over(); };
    while (!over()) {
      const std::uint32_t led = stage.load();
      if (led == kEnded) return;
      if (!spin_until(ready))
        sleep(ready);
      else if (!over())
        help(led - kLed);
    }
  }

  void run_chunk(std::uint32_t chunk, std::uint32_t thread) {
    const std::uint32_t begin = chunk * job.grain;
    const std::uint32_t left = job.count - begin;
    job.function(job.context, begin, begin + (left < job.grain ? left : job.grain), thread);
    if (pending.fetch_sub(1) == 1) pending.notify_one();
  }

  void work(std::uint32_t thread) {
    const auto ready = [this] { return has_chunks() || is_offered() || stopping.load(); };
    while (!stopping.load())
      if (!spin_until(ready))
        sleep(ready);
      else if (!lead(thread))
        help(thread);
  }

  template <class Ready>
  // Sleeps unless `ready` is true. The thread registers as a sleeper before its last check of `ready`. A thread that makes something ready
  // checks for sleepers afterwards. At least one of the two therefore sees the other.
  void sleep(Ready ready) {
    const std::uint32_t seen = wakes.load();
    sleepers.fetch_add(1);
    if (!ready()) wakes.wait(seen);
    sleepers.fetch_sub(1);
  }

  void wake() {
    wakes.fetch_add(1);
    wakes.notify_all();
  }

  void wait_done() {
    if (spin_until([this] { return pending.load() == 0; })) return;
    for (std::uint32_t left = pending.load(); left != 0; left = pending.load()) pending.wait(left);
  }

  static constexpr std::uint32_t kNone = 0, kOffered = 1, kEnded = 2, kLed = 3;  // kLed + thread

  const std::uint32_t num_threads;
  Task task = nullptr;
  void* context = nullptr;
  Job job;
  std::uint64_t generation = 0;
  // All atomics use the default (sequentially consistent) order, so that sleep() and run() cannot both miss each other's change.
  alignas(64) std::atomic<std::uint64_t> ticket{0};   // generation << kChunkBits | number of chunks not taken
  alignas(64) std::atomic<std::uint32_t> pending{0};  // number of chunks not done
  alignas(64) std::atomic<std::uint32_t> sleepers{0};
  std::atomic<std::uint32_t> wakes{0};
  std::atomic<std::uint32_t> stage{kNone};
  std::atomic<bool> caller_released{false};
  std::atomic<bool> stopping{false};
  std::vector<std::thread> threads;
};

ThreadPool::ThreadPool(std::uint32_t num_threads) {
  QUIRE_CHECK(num_threads >= 1, "the pool has at least one thread, the caller");
  state_ = std::make_unique<State>(num_threads);
}

ThreadPool::~ThreadPool() = default;

void ThreadPool::start(Task task, void* context) {
  State& state = *state_;
  QUIRE_CHECK(state.stage.load() == State::kNone, "the pool runs at most one task at a time");
  state.task = task;
  state.context = context;
  state.caller_released.store(false);
  state.stage.store(State::kOffered);
  if (state.sleepers.load() != 0) state.wake();
}

void ThreadPool::assist() {
  state_->assist([this] { return state_->has_ended() || state_->caller_released.load(); });
}

void ThreadPool::join() {
  QUIRE_CHECK(state_->stage.load() != State::kNone, "join follows start");
  state_->assist([this] { return state_->has_ended(); });
  state_->stage.store(State::kNone);
}

void ThreadPool::release_caller() {
  state_->caller_released.store(true);
  if (state_->sleepers.load() != 0) state_->wake();
}

std::uint32_t ThreadPool::num_threads() const {
  return state_->num_threads;
}

void ThreadPool::run(std::uint32_t count, std::uint32_t grain, Function function, void* context) {
  QUIRE_CHECK(grain >= 1, "a chunk has at least one item");
  if (count == 0) return;
  const std::uint32_t num_chunks = (count - 1) / grain + 1;
  if (num_chunks == 1 || state_->num_threads == 1) {
    for (std::uint32_t begin = 0; begin < count; begin += (count - begin < grain ? count - begin : grain))
      function(context, begin, count - begin < grain ? count : begin + grain, 0);
    return;
  }
  QUIRE_CHECK(num_chunks <= kChunkMask, "the number of chunks fits into its bit field; a larger grain makes fewer chunks");
  State& state = *state_;
  state.job = {function, context, count, grain, num_chunks};
  state.pending.store(num_chunks);
  state.ticket.store((++state.generation << kChunkBits) | num_chunks);
  if (state.sleepers.load() != 0) state.wake();
  state.help(0);
  state.wait_done();
}

}  // namespace quire
