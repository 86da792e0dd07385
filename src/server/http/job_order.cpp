// A lane holds at most `max_jobs` jobs, so every query can scan all of them.
#include "server/http/job_order.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"

namespace quire {

namespace {

constexpr JobOrder::Time kQuantum = std::chrono::milliseconds(10);

}  // namespace

std::optional<JobOrder::Id> JobOrder::add(const std::string& client, std::uint64_t num_bytes) {
  const auto known = clients_.find(client);
  const std::uint32_t held = known == clients_.end() ? 0 : known->second.num_jobs;
  const std::size_t free = limits_.max_jobs - std::min<std::size_t>(limits_.max_jobs, jobs_.size());
  if (free == 0 || (held > 0 && held >= free)) return std::nullopt;
  Client& of = clients_[client];
  if (held == 0) {
    std::optional<Time> least;
    for (const auto& [name, other] : clients_)
      if (name != client && (!least || other.used < *least)) least = other.used;
    of.used = std::max(Time{}, least.value_or(Time{}) - kCredit);
  }
  ++of.num_jobs;
  const Id id = next_id_++;
  jobs_.emplace(id, Job{.client = client, .num_bytes = num_bytes, .rank = of.total_started_bytes + num_bytes});
  return id;
}

bool JobOrder::has_free_thread(const Client& client) const {
  const std::uint32_t free = limits_.max_started - num_started_;
  return free > 0 && (client.num_started == 0 || client.num_started < free);
}

std::uint64_t JobOrder::free_bytes() const {
  return limits_.max_started_bytes - std::min(limits_.max_started_bytes, started_bytes_);
}

JobOrder::QueueKey JobOrder::queue_key(Id id) const {
  const Job& job = jobs_.at(id);
  const Client& client = clients_.at(job.client);
  return {client.num_started, client.last_start, job.rank, id};
}

std::optional<JobOrder::Id> JobOrder::best_queued(bool is_counted) const {
  std::optional<Id> best;
  for (const auto& [id, job] : jobs_) {
    const std::uint64_t bytes = counted(job);
    if (job.is_started || (bytes > 0) != is_counted) continue;
    const Client& client = clients_.at(job.client);
    // A client that already has large jobs started may start another if all its large jobs then take at most half of the free bytes.
    if (!has_free_thread(client) || (is_counted && client.started_bytes > 0 && client.started_bytes + bytes > free_bytes() / 2)) continue;
    if (!best || queue_key(id) < queue_key(*best)) best = id;
  }
  // The best job waits until there are enough free bytes. Until then no other large job starts.
  if (best && started_bytes_ > 0 && counted(jobs_.at(*best)) > free_bytes()) return std::nullopt;
  return best;
}

std::optional<JobOrder::Id> JobOrder::next() {
  const auto small = best_queued(false), large = best_queued(true);
  if (!small && !large) return std::nullopt;
  const Id id = !large || (small && queue_key(*small) < queue_key(*large)) ? *small : *large;
  Job& job = jobs_.at(id);
  Client& client = clients_.at(job.client);
  job.is_started = true;
  ++client.num_started;
  client.last_start = ++num_starts_;
  client.started_bytes += counted(job);
  client.total_started_bytes += job.num_bytes;
  ++num_started_;
  started_bytes_ += counted(job);
  return id;
}

void JobOrder::charge(Id id, Time used) {
  Job& job = jobs_.at(id);
  if (used <= job.used) return;
  clients_.at(job.client).used += used - job.used;
  job.used = used;
}

void JobOrder::end(Id id) {
  const auto at = jobs_.find(id);
  QUIRE_CHECK(at != jobs_.end(), "the job that ends is known");
  const Job& job = at->second;
  const auto client = clients_.find(job.client);
  if (job.is_started) {
    --num_started_;
    --client->second.num_started;
    started_bytes_ -= counted(job);
    client->second.started_bytes -= counted(job);
  }
  if (--client->second.num_jobs == 0) clients_.erase(client);
  jobs_.erase(at);
}

std::optional<JobOrder::Id> JobOrder::turn() const {
  std::optional<Id> best;
  std::tuple<Time, std::int64_t, Id> least{};
  for (const auto& [id, job] : jobs_) {
    if (!job.is_started) continue;
    // Among one client's jobs that have used equally many quanta, the oldest has the turn.
    const std::tuple key(clients_.at(job.client).used, job.used / kQuantum, id);
    if (best && least <= key) continue;
    best = id;
    least = key;
  }
  return best;
}

}  // namespace quire
