#pragma once
// Fork-join over dynamic chunks, for machines that other programs use, too. Work is not split in advance: if a thread has lost its core, a
// running thread finishes the work. Waiting threads spin briefly and then sleep.
#include <cstdint>
#include <memory>
#include <type_traits>

namespace quire {

// Runs loops in parallel. Its threads spin while there is work every few microseconds and sleep otherwise. They call nothing but bodies and
// tasks.
class ThreadPool {
 public:
  // num_threads counts the caller: ThreadPool(1) starts no thread.
  explicit ThreadPool(std::uint32_t num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] std::uint32_t num_threads() const;

  // Calls body(begin, end, thread) over [0, count) in chunks of at most `grain`, on the caller and the pool. Returns when all are done.
  // `thread` < num_threads() identifies the executing thread's scratch space. One caller at a time; body must not throw or call the pool.
  template <class Body>
  void parallel_for(std::uint32_t count, std::uint32_t grain, Body&& body) {
    run(
        count, grain,
        [](void* context, std::uint32_t begin, std::uint32_t end, std::uint32_t thread) {
          (*static_cast<std::remove_reference_t<Body>*>(context))(begin, end, thread);
        },
        &body);
  }

  // A task of many parallel_for() calls, which runs while the caller does something else: call start(), then assist() any number of times,
  // then join(). Between start() and join() only the task may call parallel_for(). One thread of the pool leads the task, or the caller
  // once it assists or joins. With one thread the caller leads.
  using Task = void (*)(void* context);
  void start(Task task, void* context);
  // Computes with the other threads until the task releases the caller or has ended.
  void assist();
  // Computes with the other threads until the task has ended.
  void join();
  // Called by the task: assist() may return, because its caller is needed elsewhere soon.
  void release_caller();

 private:
  using Function = void (*)(void* context, std::uint32_t begin, std::uint32_t end, std::uint32_t thread);
  void run(std::uint32_t count, std::uint32_t grain, Function function, void* context);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
