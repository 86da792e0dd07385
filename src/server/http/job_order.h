#pragma once
// Decides which queued job starts next, and which started job has the turn. Has only the rules for a lane's threads; it uses no threads and
// no clock.
//
// A client is a tenant or, for requests without a tenant, an address. Clients share the lane's CPU time equally. Among one client's jobs,
// the job that has used the least time goes first, so a short job never waits until a long job ends. A client that returns after a pause
// starts at most kCredit of CPU time ahead of the others.
//
// A client may hold at most as many queue slots, threads and bytes as are free, so the next client finds room. The rule is from Choudhury
// and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998.
//
// States of a job: queued (add) -> started (next) -> gone (end).
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>

namespace quire {

// Used on one thread only.
class JobOrder {
 public:
  using Id = std::uint64_t;
  using Time = std::chrono::nanoseconds;  // processor time

  struct Limits {
    std::uint32_t max_jobs = 1024;   // queued and started jobs
    std::uint32_t max_started = 16;  // started jobs, each with a thread
    // Limit for the bytes that all started jobs read; parsed values take several times as much. Jobs of up to kSmallBytes do not count.
    std::uint64_t max_started_bytes = std::uint64_t{32} << 20;
  };
  static constexpr std::uint64_t kSmallBytes = std::uint64_t{1} << 20;
  static constexpr Time kCredit = std::chrono::milliseconds(100);

  explicit JobOrder(const Limits& limits) : limits_(limits) {}

  // Adds a job. Returns nullopt if the queue is full or this client has its share of it.
  [[nodiscard]] std::optional<Id> add(const std::string& client, std::uint64_t num_bytes);
  // Starts a job and returns it. Returns nullopt if no job may start.
  [[nodiscard]] std::optional<Id> next();
  // Sets the processor time that a started job has used in total.
  void charge(Id id, Time used);
  void end(Id id);
  // Returns the started job that has the turn; nullopt if no job has started.
  [[nodiscard]] std::optional<Id> turn() const;

  [[nodiscard]] std::size_t size() const { return jobs_.size(); }
  [[nodiscard]] std::uint32_t num_started() const { return num_started_; }

 private:
  struct Job {
    std::string client;
    std::uint64_t num_bytes = 0;
    std::uint64_t rank = 0;  // order in its client's queue: `Client::total_started_bytes` when the job was added, plus `num_bytes`
    Time used{};
    bool is_started = false;
  };
  struct Client {
    std::uint32_t num_jobs = 0, num_started = 0;
    std::uint64_t started_bytes = 0;        // of the jobs that are started now
    std::uint64_t total_started_bytes = 0;  // of all jobs that have started since the client was added
    std::uint64_t last_start = 0;
    Time used{};
  };
  using QueueKey = std::tuple<std::uint32_t, std::uint64_t, std::uint64_t, Id>;
  // Order of queued jobs: the client with the fewest started jobs goes first, then the client with the longest time since its last start.
  [[nodiscard]] QueueKey queue_key(Id id) const;
  [[nodiscard]] bool has_free_thread(const Client& client) const;
  [[nodiscard]] std::uint64_t free_bytes() const;
  // Returns the best queued job among the large ones (`is_counted`), or among the others.
  [[nodiscard]] std::optional<Id> best_queued(bool is_counted) const;
  [[nodiscard]] static std::uint64_t counted(const Job& job) { return job.num_bytes > kSmallBytes ? job.num_bytes : 0; }

  const Limits limits_;
  std::map<Id, Job> jobs_;
  std::map<std::string, Client> clients_;  // clients with jobs
  Id next_id_ = 1;
  std::uint64_t num_starts_ = 0;
  std::uint32_t num_started_ = 0;
  std::uint64_t started_bytes_ = 0;
};

}  // namespace quire
