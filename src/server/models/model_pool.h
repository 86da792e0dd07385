#pragma once
// Starts the process of a model when a request needs it, and stops processes that are idle or whose memory another model needs.
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/base/logger.h"
#include "server/models/child_process.h"
#include "server/models/choose_victims.h"
#include "server/models/model_entry.h"

namespace quire {

// stopped: no process; loading: the process is not ready; ready: it answers requests; unloading: it was asked to end.
enum class ModelState : std::uint8_t { stopped, loading, ready, unloading };

[[nodiscard]] const char* name_of(ModelState state);

// A model as lists and metrics show it.
struct ModelStatus {
  ModelState state = ModelState::stopped;
  std::uint32_t num_running = 0, num_waiting = 0;  // requests
  std::uint64_t loads_total = 0, load_failures_total = 0, unloads_total = 0, crashes_total = 0;
  double load_seconds_total = 0.0, last_load_seconds = 0.0;
  std::int64_t expires_s = 0;  // seconds since 1970 when the model is unloaded if no request comes; 0: never
  std::uint16_t port = 0;      // 0: not ready
};

// Used on the server's thread only.
class ModelPool {
 public:
  using Clock = std::chrono::steady_clock;
  // Called once with the port of the model's process.
  using OnReady = std::function<void(Result<std::uint16_t> port)>;

  // A request's hold on a model. While a running request holds it, the model is not unloaded. The destructor releases it.
  class Hold {
   public:
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    // Replaces the time for which the model stays loaded after its last request, in seconds; < 0: until its memory is needed.
    void keep_alive(double seconds);

   private:
    friend class ModelPool;
    Hold(ModelPool& pool, std::size_t model) : pool_(&pool), pool_alive_(pool.alive_), model_(model) {}
    ModelPool* pool_;
    std::weak_ptr<bool> pool_alive_;
    std::size_t model_;
    OnReady on_ready_;                 // empty: called
    Clock::time_point since_, until_;  // when the request began to wait, and how long it may wait
    bool is_running_ = false;
  };

  // All arguments must outlive this object.
  ModelPool(boost::asio::io_context& io, const ModelsOptions& options, std::vector<std::string> environment, Logger& logger);
  ~ModelPool();
  ModelPool(const ModelPool&) = delete;
  ModelPool& operator=(const ModelPool&) = delete;

  // Requests a model, and starts its process if needed. Calls `on_ready` when the model is ready, which may be during this call. Errors:
  // `overloaded` (too many requests wait), `unavailable` (the model cannot be loaded, or not in time) and `shutting_down`.
  [[nodiscard]] std::shared_ptr<Hold> request(std::size_t model, OnReady on_ready);

  // Unloads the model if it is loaded and has no running requests. Returns whether it does.
  bool unload(std::size_t model);
  // Refuses all requests that wait, and stops all processes. A process that still runs after `timeout` is killed. Then calls `on_end`.
  void stop(std::chrono::milliseconds timeout, std::function<void()> on_end);
  // Refuses all requests that wait now or later, with the error shutting_down.
  void refuse_waiting();

  [[nodiscard]] ModelStatus status(std::size_t model) const;
  [[nodiscard]] const ModelsOptions& options() const { return *options_; }

 private:
  struct Model;
  void wait_for_children();
  // Moves each model to its next state as far as possible, then sets the timer to the next time at which something can change.
  void advance();
  void take_ended(Model& model);
  void refuse_late(Clock::time_point now);
  void load_waiting(Clock::time_point now);
  void unload_idle(Clock::time_point now);
  void kill_late(Clock::time_point now);
  void start(Model& model);
  void on_line(Model& model, std::string_view line);
  void begin_unload(Model& model, const char* why);
  void set_load_failure(Model& model, std::string why);
  void take_crash(Model& model, Clock::time_point now);
  void run_waiting(Model& model);
  void refuse(Model& model, const Error& error);
  void release(Hold& hold);
  void set_timer();
  [[nodiscard]] Model* next_waiting(Clock::time_point now, const std::vector<Model*>& done);
  [[nodiscard]] std::vector<Model*> residents();

  boost::asio::io_context* io_;
  const ModelsOptions* options_;
  std::vector<std::string> environment_;
  Logger* logger_;
  std::vector<std::unique_ptr<Model>> models_;
  boost::asio::signal_set child_signals_;
  boost::asio::steady_timer timer_;
  std::uint64_t num_uses_ = 0;
  bool is_refusing_ = false;
  bool is_advancing_ = false, must_advance_again_ = false;
  std::function<void()> on_end_;                                // set while the pool stops
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // destroyed with this object
};

}  // namespace quire
