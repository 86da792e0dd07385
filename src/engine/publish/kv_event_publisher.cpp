// Publishes events of the KV cache to subscribers. The engine thread encodes and queues batches. The publisher's thread sends them, stores
// the most recent ones, and checks for replay requests at least every 100 ms. ZeroMQ's PUB never waits for subscribers: beyond the
// high-water mark of a subscriber, it drops messages for this subscriber. XPUB is a PUB that also receives subscriptions.
#include "engine/publish/kv_event_publisher.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <stop_token>
#include <string_view>
#include <thread>
#include <utility>
#include <zmq.hpp>

#include "engine/publish/kv_event_bytes.h"
#include "engine/publish/local_endpoint.h"

namespace quire {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(100);
constexpr int kLinger_ms = 1000;
// Limit of the bytes of stored batches, in addition to the limit of their number, because one batch may contain the tokens of a long
// prompt.
constexpr std::size_t kMaxReplayBytes = std::size_t{64} << 20;
constexpr std::uint64_t kEndOfReplay = UINT64_MAX;
constexpr std::size_t kMostTopicBytes = 256;
constexpr int kMostSubscriptions = 10'000;  // maximum number of stored subscriptions, which only serve to count batches

using Sequence = std::array<std::uint8_t, 8>;

Sequence big_endian(std::uint64_t number) {
  Sequence bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(number >> (8 * (bytes.size() - 1 - i)));
  return bytes;
}

Result<void> open(zmq::socket_t& socket, const std::string& endpoint, bool binds, const char* field) {
  try {
    binds ? socket.bind(endpoint) : socket.connect(endpoint);
  } catch (const zmq::error_t& error) {
    const bool is_taken = binds && error.num() == EADDRINUSE && std::string_view(field) == "endpoint";
    return fail(ErrorCode::io, field, fmt::format("'{}' cannot be {}: {}", endpoint, binds ? "bound" : "connected to", error.what()),
                is_taken ? "use another endpoint, such as tcp://*:5557; if a router has bound this one, put '>' before it to connect"
                         : "use another endpoint, such as tcp://*:5557");
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
        sender_(context_, zmq::socket_type::xpub),
        replay_socket_(context_, zmq::socket_type::router) {
    sender_.set(zmq::sockopt::sndhwm, static_cast<int>(options.hwm));
    sender_.set(zmq::sockopt::linger, kLinger_ms);
    sender_.set(zmq::sockopt::ipv6, true);
    sender_.set(zmq::sockopt::rcvhwm, kMostSubscriptions);
    // Lets a whole replay fit into the queue. ZeroMQ counts messages that the client has read until it has read half of the limit, so there
    // must be room for two replays.
    replay_socket_.set(zmq::sockopt::sndhwm, 2 * (static_cast<int>(options.buffer_steps) + 1));
    replay_socket_.set(zmq::sockopt::linger, 0);
    replay_socket_.set(zmq::sockopt::ipv6, true);
  }
  ~ZmqPublisher() override {
    thread_.request_stop();
    news_.notify_all();
  }

  Result<void> start() {
    const bool must_connect = options_.endpoint.starts_with('>');
    const std::string given = options_.endpoint.substr(must_connect ? 1 : 0);
    const std::string own = must_connect ? std::string() : bindable_endpoint(given);
    const bool binds = !own.empty();
    const std::string& endpoint = binds ? own : given;
    if (auto opened = open(sender_, endpoint, binds, "endpoint"); !opened) return opened;
    if (logger_ != nullptr)
      logger_->write(LogLevel::info, "kv_events_begin", {{"endpoint", endpoint}, {"how", binds ? "bound" : "connected"}});
    if (!options_.replay_endpoint.empty())
      if (auto opened = open(replay_socket_, options_.replay_endpoint, true, "replay_endpoint"); !opened) return opened;
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
  [[nodiscard]] std::uint64_t num_without_subscriber() const override { return num_without_subscriber_; }
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
          news_.wait_for(lock, stop, kPollInterval, [this] { return !waiting_.empty(); });
          batches.swap(waiting_);
        }
        note_subscriptions();
        for (Batch& batch : batches) send(std::move(batch));
        if (!options_.replay_endpoint.empty()) answer_all();
      }
    } catch (const std::exception& error) {
      if (logger_ != nullptr) logger_->write(LogLevel::error, "kv_events_end", {{"why", std::string_view(error.what())}});
      ends_ = true;
    }
  }

  // Stores new subscriptions. A subscription message is one byte (1: subscribe, 0: unsubscribe) and a topic prefix.
  void note_subscriptions() {
    zmq::message_t message;
    while (sender_.recv(message, zmq::recv_flags::dontwait)) {
      const std::string_view said = message.to_string_view();
      if (said.empty() || said.size() > kMostTopicBytes) continue;
      if (said.front() == 0) wanted_.erase(std::string(said.substr(1)));
      if (said.front() == 1 && std::cmp_less(wanted_.size(), kMostSubscriptions)) wanted_.emplace(said.substr(1));
    }
  }

  void send(Batch batch) {
    const Sequence sequence = big_endian(batch.first);
    sender_.send(zmq::buffer(options_.topic), zmq::send_flags::sndmore);
    sender_.send(zmq::buffer(sequence), zmq::send_flags::sndmore);
    sender_.send(zmq::buffer(batch.second), zmq::send_flags::none);
    const auto wants = [this](const std::string& beginning) { return options_.topic.starts_with(beginning); };
    ++(std::ranges::any_of(wanted_, wants) ? num_published_ : num_without_subscriber_);
    if (options_.replay_endpoint.empty()) return;
    num_replay_bytes_ += batch.second.size();
    replay_buffer_.push_back(std::move(batch));
    while (replay_buffer_.size() > options_.buffer_steps || num_replay_bytes_ > kMaxReplayBytes) {
      num_replay_bytes_ -= replay_buffer_.front().second.size();
      replay_buffer_.pop_front();
    }
  }

  void answer_all() {
    constexpr int kMostAtOnce = 16;  // limited, so that events are still sent in between
    for (int i = 0; i < kMostAtOnce; ++i) {
      std::vector<zmq::message_t> frames;
      zmq::message_t frame;
      if (!replay_socket_.recv(frame, zmq::recv_flags::dontwait)) return;
      frames.push_back(std::move(frame));
      while (frames.back().more()) {
        zmq::message_t next;
        (void)replay_socket_.recv(next, zmq::recv_flags::none);
        frames.push_back(std::move(next));
      }
      // Messages of another form are no replay requests and are ignored.
      if (frames.size() == 3 && frames[1].empty() && frames[2].size() == sizeof(Sequence)) answer(frames[0], frames[2]);
    }
  }

  void answer(const zmq::message_t& client, const zmq::message_t& question) {
    std::uint64_t first = 0;
    for (std::size_t i = 0; i < question.size(); ++i) first = (first << 8) | question.data<std::uint8_t>()[i];
    // Lets the socket update how much the client has read since the last answer. Otherwise it updates this only once per millisecond, and a
    // message that seems not to fit is dropped.
    (void)replay_socket_.get(zmq::sockopt::events);
    for (const auto& [sequence, bytes] : replay_buffer_)
      if (sequence >= first) reply(client, options_.topic, sequence, bytes);
    reply(client, "", kEndOfReplay, "");
  }

  // Sends one message of a replay. vLLM 0.32.0 also sends the topic in replays.
  void reply(const zmq::message_t& client, std::string_view topic, std::uint64_t number, std::string_view bytes) {
    const Sequence sequence = big_endian(number);
    put(client.data(), client.size(), ZMQ_SNDMORE);
    put(nullptr, 0, ZMQ_SNDMORE);
    if (encoding_.format == KvEventFormat::vllm_0_32_0) put(topic.data(), topic.size(), ZMQ_SNDMORE);
    put(sequence.data(), sequence.size(), ZMQ_SNDMORE);
    put(bytes.data(), bytes.size(), 0);
  }

  // Sends one frame without waiting. A client that has disconnected or does not read gets nothing more, because a ROUTER drops what it
  // cannot send.
  void put(const void* bytes, std::size_t size, int flags) { (void)zmq_send(replay_socket_.handle(), bytes, size, flags | ZMQ_DONTWAIT); }

  KvEventsOptions options_;
  KvEventEncoding encoding_;
  std::shared_ptr<Logger> logger_;
  std::uint64_t next_sequence_ = 0;  // used by the engine thread
  zmq::context_t context_;
  zmq::socket_t sender_, replay_socket_;  // used by the publisher's thread once it runs
  std::deque<Batch> replay_buffer_;       // used by the publisher's thread
  std::set<std::string> wanted_;          // used by the publisher's thread: subscribed topic prefixes
  std::size_t num_replay_bytes_ = 0;
  std::mutex mutex_;
  std::condition_variable_any news_;
  std::deque<Batch> waiting_;  // guarded by mutex_
  std::atomic<bool> ends_{false};
  std::atomic<std::uint64_t> num_published_{0}, num_without_subscriber_{0}, num_dropped_{0};
  std::jthread thread_;  // declared last because it uses all other members
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
