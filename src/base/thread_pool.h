#pragma once
// Fork-join over dynamic chunks, for machines on which other programs also run. Work is not divided in advance: if a thread has lost its
// core, the running threads do the rest. Waiting threads spin briefly and then sleep.
#include <cstdint>
#include <memory>
#include <type_traits>

namespace quire {

// Runs loops in parallel. The pool's threads spin while work arrives every few microseconds, and sleep otherwise. They run only loop bodies
// and tasks.
class ThreadPool {
 public:
  // Creates a pool. num_threads includes the caller, so ThreadPool(1) starts no thread.
  explicit ThreadPool(std::uint32_t num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] std::uint32_t num_threads() const;

  // Calls body(begin, end, thread) for all of [0, count) in chunks of at most `grain`, on the caller and on the pool's threads. Returns
  // when all chunks are done. `thread` < num_threads() identifies the scratch space of the executing thread. One caller at a time; body
  // must not throw or call the pool.
  template <class Body>
  void parallel_for(std::uint32_t count, std::uint32_t grain, Body&& body) {
    run(
        count, grain,
        [](void* context, std::uint32_t begin, std::uint32_t end, std::uint32_t thread) {
          (*static_cast<std::remove_reference_t<Body>*>(context))(begin, end, thread);
        },
        &body);
  }

  // Starts a task: many parallel_for() calls that run while the caller does other work. Call start(), then assist() any number of times,
  // then join(). Between start() and join(), only the task may call parallel_for(). One pool thread leads the task, or the caller once it
  // calls assist() or join(). In a pool of one thread the caller leads.
  using Task = void (*)(void* context);
  void start(Task task, void* context);
  // Takes part in the task until the task calls release_caller() or has ended.
  void assist();
  // Takes part in the task until it has ended.
  void join();
  // Lets assist() return. Called by the task when its caller is needed elsewhere soon.
  void release_caller();

 private:
  using Function = void (*)(void* context, std::uint32_t begin, std::uint32_t end, std::uint32_t thread);
  void run(std::uint32_t count, std::uint32_t grain, Function function, void* context);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
