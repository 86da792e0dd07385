// The load run: one thread polls all connections. It sends requests that are due, reads answers, and ends requests that take too long.
// A request is in one of four states: not due (due_), due (ready_, in the order of arrival), in progress (open_), or ended (its record has
// an end). A connection whose answer is complete is used again if the server allows that.
#include "traffic/traffic_run.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <queue>
#include <utility>

#include "traffic/answer_reader.h"
#include "traffic/http_exchange.h"

namespace quire {
namespace {

using Clock = HttpExchange::Clock;

constexpr double kTick_s = 0.1;
constexpr std::uint32_t kOtherFiles = 64;  // files of the process that are not connections
constexpr std::uint32_t kMaxConnections = 1'000'000;

class OpenRequest {
 public:
  OpenRequest(std::uint32_t index, std::unique_ptr<NetStream> stream, bool is_reused, std::string bytes, Clock::time_point now)
      : index_(index), is_reused_(is_reused), sent_(now), exchange_(std::move(stream), std::move(bytes)), reader_(now) {}

  HttpExchange::State advance() {
    return exchange_.advance([this](std::string_view body, Clock::time_point now) { reader_.take(exchange_.status(), body, now); });
  }
  // Returns true if the server closed an idle connection before it received the request, so that the request may be sent again.
  [[nodiscard]] bool is_repeatable() const { return is_reused_ && !exchange_.has_answer(); }

  [[nodiscard]] std::uint32_t index() const { return index_; }
  [[nodiscard]] Clock::time_point sent() const { return sent_; }
  // Returns the bytes of the request.
  [[nodiscard]] const std::string& bytes() const { return exchange_.request(); }
  [[nodiscard]] pollfd polled() const { return exchange_.polled(); }
  std::unique_ptr<NetStream> take_stream() { return exchange_.take_stream(); }
  RequestRecord finish(Clock::time_point now) { return reader_.finish(exchange_.status(), now); }
  RequestRecord fail(std::string why, Clock::time_point now) { return reader_.fail(std::move(why), now); }
  [[nodiscard]] const std::string& failure() const { return exchange_.failure(); }

 private:
  std::uint32_t index_;
  bool is_reused_;
  Clock::time_point sent_;
  HttpExchange exchange_;
  AnswerReader reader_;
};

class TrafficRun {
 public:
  TrafficRun(const Target& target, std::span<const WorkloadRequest> requests, const TrafficOptions& options, const TrafficHooks& hooks)
      : target_(target),
        requests_(requests),
        options_(options),
        hooks_(hooks),
        first_child_(requests.size(), kNoRequest),
        next_sibling_(requests.size(), kNoRequest) {
    result_.records.resize(requests.size());
    for (auto i = static_cast<std::uint32_t>(requests.size()); i-- > 0;)
      if (const std::uint32_t after = requests[i].after; after != kNoRequest)
        next_sibling_[i] = std::exchange(first_child_[after], i);
      else
        due_.emplace(requests[i].start_s, i);
  }

  TrafficResult run() {
    begin_ = Clock::now();
    while (num_ended_ < requests_.size() && !(hooks_.is_stopped && hooks_.is_stopped())) {
      send_due();
      wait();
      advance_all();
      if (hooks_.progress) hooks_.progress(num_ended_);
    }
    result_.duration_s = seconds_at(Clock::now());
    return std::move(result_);
  }

 private:
  [[nodiscard]] double seconds_at(Clock::time_point time) const { return std::chrono::duration<double>(time - begin_).count(); }

  void send_due() {
    for (const double now_s = seconds_at(Clock::now()); !due_.empty() && due_.top().first <= now_s; due_.pop())
      ready_.push_back(due_.top().second);
    for (; !ready_.empty() && open_.size() < options_.max_concurrency; ready_.pop_front()) send(ready_.front());
  }

  void send(std::uint32_t index) {
    std::string bytes = target_.request("POST", options_.path, hooks_.body(index));
    std::unique_ptr<NetStream> stream = idle_stream();
    const bool is_reused = stream != nullptr;
    if (!is_reused) stream = target_.connect();
    const Clock::time_point now = Clock::now();
    result_.records[index].sent_s = seconds_at(now);
    open_.push_back(std::make_unique<OpenRequest>(index, std::move(stream), is_reused, std::move(bytes), now));
    result_.peak_concurrency = std::max(result_.peak_concurrency, static_cast<std::uint32_t>(open_.size()));
    advance(open_.back(), now);
    if (open_.back() == nullptr) open_.pop_back();
  }

  // Returns a connection of an earlier request that the server has not closed, or null.
  std::unique_ptr<NetStream> idle_stream() {
    while (!idle_.empty()) {
      std::unique_ptr<NetStream> stream = std::move(idle_.back());
      idle_.pop_back();
      std::byte unexpected{};
      if (stream->read({&unexpected, 1}) == 0) return stream;
    }
    return nullptr;
  }

  void wait() {
    polled_.clear();
    for (const auto& request : open_) polled_.push_back(request->polled());
    double wait_s = kTick_s;
    if (!due_.empty() && open_.size() < options_.max_concurrency)
      wait_s = std::clamp(due_.top().first - seconds_at(Clock::now()), 0.0, kTick_s);
    const timespec time{.tv_sec = 0, .tv_nsec = static_cast<long>(wait_s * 1e9)};
    if (ppoll(polled_.data(), polled_.size(), &time, nullptr) < 0) polled_.clear();
  }

  void advance_all() {
    const Clock::time_point now = Clock::now();
    const auto oldest = now - std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.timeout_s));
    for (std::size_t i = 0; i < polled_.size(); ++i) {
      if (polled_[i].revents != 0 || polled_[i].fd < 0) advance(open_[i], now);
      if (open_[i] != nullptr && open_[i]->sent() < oldest)
        end(open_[i], open_[i]->fail(fmt::format("no complete answer within {} s (--timeout)", options_.timeout_s), now));
    }
    std::erase_if(open_, [](const auto& request) { return request == nullptr; });
  }

  void advance(std::unique_ptr<OpenRequest>& request, Clock::time_point now) {
    switch (request->advance()) {
      case HttpExchange::State::running:
        return;
      case HttpExchange::State::done: {
        RequestRecord record = request->finish(Clock::now());
        if (auto stream = request->take_stream()) idle_.push_back(std::move(stream));
        return end(request, std::move(record));
      }
      case HttpExchange::State::failed:
        if (!request->is_repeatable()) return end(request, request->fail(request->failure(), Clock::now()));
        request = std::make_unique<OpenRequest>(request->index(), target_.connect(), false, request->bytes(), request->sent());
        return advance(request, now);
    }
  }

  // Stores the record of a request, and resets the pointer.
  void end(std::unique_ptr<OpenRequest>& request, RequestRecord record) {
    const std::uint32_t index = request->index();
    record.sent_s = result_.records[index].sent_s;
    if (!record.has_usage) record.prompt_tokens = requests_[index].prompt_tokens;
    result_.records[index] = std::move(record);
    request.reset();
    ++num_ended_;
    const double now_s = seconds_at(Clock::now());
    for (std::uint32_t child = first_child_[index]; child != kNoRequest; child = next_sibling_[child])
      due_.emplace(now_s + requests_[child].start_s, child);
  }

  const Target& target_;
  const std::span<const WorkloadRequest> requests_;
  const TrafficOptions& options_;
  const TrafficHooks& hooks_;
  std::vector<std::uint32_t> first_child_, next_sibling_;  // requests that wait for the end of another request
  Clock::time_point begin_;
  std::priority_queue<std::pair<double, std::uint32_t>, std::vector<std::pair<double, std::uint32_t>>, std::greater<>> due_;
  std::deque<std::uint32_t> ready_;
  std::vector<std::unique_ptr<OpenRequest>> open_;
  std::vector<pollfd> polled_;  // of open_, in its order
  std::vector<std::unique_ptr<NetStream>> idle_;
  std::size_t num_ended_ = 0;
  TrafficResult result_;
};

}  // namespace

TrafficResult run_traffic(const Target& target, std::span<const WorkloadRequest> requests, const TrafficOptions& options,
                          const TrafficHooks& hooks) {
  return TrafficRun(target, requests, options, hooks).run();
}

std::uint32_t available_connections() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto num_files = static_cast<std::uint32_t>(std::min<rlim_t>(limit.rlim_cur, kMaxConnections));
  return num_files > kOtherFiles ? num_files - kOtherFiles : 1;
}

}  // namespace quire
