// Events of the KV cache on their way to who subscribes. The engine thread writes a batch into bytes and puts them into a queue; the thread
// here sends them, keeps the last ones, and looks every 100 ms at most whether somebody asks for them. ZeroMQ's PUB never waits for who
// subscribes: beyond the high-water mark it drops, per subscriber.
#include "engine/publish/kv_event_publisher.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>
#include <zmq.hpp>

#include "engine/publish/kv_event_bytes.h"

namespace quire {
namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(100);
constexpr int kLinger_ms = 1000;
// Beside the number of batches: one may hold the tokens of a long prompt.
constexpr std::size_t kMostKeptBytes = std::size_t{64} << 20;
constexpr std::uint64_t kEndOfReplay = UINT64_MAX;

using Sequence = std::array<std::uint8_t, 8>;

Sequence big_endian(std::uint64_t number) {
  Sequence bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(number >> (8 * (bytes.size() - 1 - i)));
  return bytes;
}

// As vLLM: who names a place that others can reach waits there, any other place is one where somebody waits.
bool is_bound(const std::string& endpoint) {
  return endpoint.contains('*') || endpoint.contains("::") || endpoint.starts_with("ipc://") || endpoint.starts_with("inproc://") ||
         endpoint == KvEventsOptions().endpoint;
}

Result<void> open(zmq::socket_t& socket, const std::string& endpoint, bool binds, const char* field) {
  try {
    binds ? socket.bind(endpoint) : socket.connect(endpoint);
  } catch (const zmq::error_t& error) {
    return fail(ErrorCode::io, field, fmt::format("'{}' cannot be {}: {}", endpoint, binds ? "bound" : "connected to", error.what()),
                "give another, such as tcp://*:5557");
  }
  return {};
}

class ZmqPublisher final : public KvEventPublisher {
 public:
  ZmqPublisher(const KvEventsOptions& options, std::span<const KvCacheGroup> groups, std::shared_ptr<Logger> logger)
      : options_(options),
        encoding_{.format = options.format == "0.32.0" ? KvEventFormat::vllm_0_32_0 : KvEventFormat::vllm_0_19_0,
                  .hashes = options.use_int_block_hashes ? KvHashForm::integer : KvHashForm::bytes,
                  .groups = kv_event_groups(groups)},
        logger_(std::move(logger)),
        sender_(context_, zmq::socket_type::pub),
        asked_(context_, zmq::socket_type::router) {
    sender_.set(zmq::sockopt::sndhwm, static_cast<int>(options.hwm));
    sender_.set(zmq::sockopt::linger, kLinger_ms);
    sender_.set(zmq::sockopt::ipv6, true);
    // A whole answer fits.
    asked_.set(zmq::sockopt::sndhwm, static_cast<int>(options.buffer_steps) + 1);
    asked_.set(zmq::sockopt::linger, 0);
    asked_.set(zmq::sockopt::ipv6, true);
  }
  ~ZmqPublisher() override {
    thread_.request_stop();
    news_.notify_all();
  }

  Result<void> start() {
    if (auto opened = open(sender_, options_.endpoint, is_bound(options_.endpoint), "endpoint"); !opened) return opened;
    if (!options_.replay_endpoint.empty())
      if (auto opened = open(asked_, options_.replay_endpoint, true, "replay_endpoint"); !opened) return opened;
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
    return {};
  }

  void publish(std::span<const KvEvent> events) override {
    if (events.empty()) return;
    const double now_s = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    const std::uint64_t sequence = next_sequence_++;
    std::string bytes;
    append_event_batch(bytes, now_s, events, 0, encoding_);
    {
      const std::lock_guard lock(mutex_);
      if (ends_ || waiting_.size() >= options_.max_queue_size) {
        ++num_dropped_;
        return;
      }
      waiting_.emplace_back(sequence, std::move(bytes));
    }
    news_.notify_one();
  }

  [[nodiscard]] std::uint64_t num_published() const override { return num_published_; }
  [[nodiscard]] std::uint64_t num_dropped() const override { return num_dropped_; }

 private:
  using Batch = std::pair<std::uint64_t, std::string>;

  void run(const std::stop_token& stop) {
    try {
      for (bool is_last = false; !is_last;) {
        is_last = stop.stop_requested();
        std::deque<Batch> batches;
        {
          std::unique_lock lock(mutex_);
          news_.wait_for(lock, stop, kBetweenLooks, [this] { return !waiting_.empty(); });
          batches.swap(waiting_);
        }
        for (Batch& batch : batches) send(std::move(batch));
        if (!options_.replay_endpoint.empty()) answer_all();
      }
    } catch (const std::exception& error) {
      if (logger_ != nullptr) logger_->write(LogLevel::error, "kv_events_end", {{"why", std::string_view(error.what())}});
      ends_ = true;
    }
  }

  void send(Batch batch) {
    const Sequence sequence = big_endian(batch.first);
    sender_.send(zmq::buffer(options_.topic), zmq::send_flags::sndmore);
    sender_.send(zmq::buffer(sequence), zmq::send_flags::sndmore);
    sender_.send(zmq::buffer(batch.second), zmq::send_flags::none);
    ++num_published_;
    if (options_.replay_endpoint.empty()) return;
    num_kept_bytes_ += batch.second.size();
    kept_.push_back(std::move(batch));
    while (kept_.size() > options_.buffer_steps || num_kept_bytes_ > kMostKeptBytes) {
      num_kept_bytes_ -= kept_.front().second.size();
      kept_.pop_front();
    }
  }

  void answer_all() {
    constexpr int kMostAtOnce = 16;  // events go on meanwhile
    for (int i = 0; i < kMostAtOnce; ++i) {
      std::vector<zmq::message_t> frames;
      zmq::message_t frame;
      if (!asked_.recv(frame, zmq::recv_flags::dontwait)) return;
      frames.push_back(std::move(frame));
      while (frames.back().more()) {
        zmq::message_t next;
        (void)asked_.recv(next, zmq::recv_flags::none);
        frames.push_back(std::move(next));
      }
      // Anything else is nobody's question.
      if (frames.size() == 3 && frames[1].empty() && frames[2].size() == sizeof(Sequence)) answer(frames[0], frames[2]);
    }
  }

  void answer(const zmq::message_t& client, const zmq::message_t& question) {
    std::uint64_t first = 0;
    for (std::size_t i = 0; i < question.size(); ++i) first = (first << 8) | question.data<std::uint8_t>()[i];
    for (const auto& [sequence, bytes] : kept_)
      if (sequence >= first) reply(client, options_.topic, sequence, bytes);
    reply(client, "", kEndOfReplay, "");
  }

  // vLLM 0.32.0 names the topic in replays too.
  void reply(const zmq::message_t& client, std::string_view topic, std::uint64_t number, std::string_view bytes) {
    const Sequence sequence = big_endian(number);
    put(client.data(), client.size(), ZMQ_SNDMORE);
    put(nullptr, 0, ZMQ_SNDMORE);
    if (encoding_.format == KvEventFormat::vllm_0_32_0) put(topic.data(), topic.size(), ZMQ_SNDMORE);
    put(sequence.data(), sequence.size(), ZMQ_SNDMORE);
    put(bytes.data(), bytes.size(), 0);
  }

  // One that has gone, or does not read, gets nothing more: a ROUTER drops what it cannot send.
  void put(const void* bytes, std::size_t size, int flags) { (void)zmq_send(asked_.handle(), bytes, size, flags | ZMQ_DONTWAIT); }

  KvEventsOptions options_;
  KvEventEncoding encoding_;
  std::shared_ptr<Logger> logger_;
  std::uint64_t next_sequence_ = 0;  // of the engine's thread
  zmq::context_t context_;
  zmq::socket_t sender_, asked_;  // of the thread, once it runs
  std::deque<Batch> kept_;        // the same
  std::size_t num_kept_bytes_ = 0;
  std::mutex mutex_;
  std::condition_variable_any news_;
  std::deque<Batch> waiting_;  // under the mutex
  std::atomic<bool> ends_{false};
  std::atomic<std::uint64_t> num_published_{0}, num_dropped_{0};
  std::jthread thread_;  // last: it uses all of these
};

}  // namespace

Result<std::unique_ptr<KvEventPublisher>> KvEventPublisher::create(const KvEventsOptions& options, std::span<const KvCacheGroup> groups,
                                                                   std::shared_ptr<Logger> logger) {
  if (!options.is_on()) return nullptr;
  auto publisher = std::make_unique<ZmqPublisher>(options, groups, std::move(logger));
  if (auto started = publisher->start(); !started) return std::unexpected(std::move(started.error()));
  return publisher;
}

}  // namespace quire
