#pragma once
// Fork-join over dynamic chunks, for machines whose cores are shared with others: no static split, so one running thread finishes the
// work when another has lost its core; waits spin briefly and then sleep.
#include <cstdint>
#include <memory>
#include <type_traits>

namespace quire {

// Its threads spin while there is work every few microseconds and sleep otherwise; they belong to the pool and never call anything but
// bodies and tasks.
class ThreadPool {
 public:
  // num_threads counts the caller: ThreadPool(1) starts no thread.
  explicit ThreadPool(std::uint32_t num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] std::uint32_t num_threads() const;

  // Calls body(begin, end, thread) over [0, count) in chunks of at most `grain`, on the caller and the pool; returns when all are done.
  // `thread` < num_threads() names the executing thread's scratch space. One caller at a time; body must not throw or call back in.
  template <class Body>
  void parallel_for(std::uint32_t count, std::uint32_t grain, Body&& body) {
    run(
        count, grain,
        [](void* context, std::uint32_t begin, std::uint32_t end, std::uint32_t thread) {
          (*static_cast<std::remove_reference_t<Body>*>(context))(begin, end, thread);
        },
        &body);
  }

  // A task of many parallel_for()s that goes on while the caller does something else: start, at will assist, join. Between start and join
  // only the task may call parallel_for(). One thread of the pool, or the caller once it joins in, leads it; with one thread, the caller.
  using Task = void (*)(void* context);
  void start(Task task, void* context);
  // Computes with the others until the task releases the caller or has ended.
  void assist();
  // Computes with the others until the task has ended.
  void join();
  // For the task: assist() may return, for its caller is wanted elsewhere soon.
  void release_caller();

 private:
  using Function = void (*)(void* context, std::uint32_t begin, std::uint32_t end, std::uint32_t thread);
  void run(std::uint32_t count, std::uint32_t grain, Function function, void* context);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
