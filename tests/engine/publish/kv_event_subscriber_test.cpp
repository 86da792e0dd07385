// Tests what a router receives from the publisher, also when it asks for batches that it missed, and the errors of endpoints.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "engine/publish/kv_event_bytes.h"
#include "engine/publish/kv_event_publisher.h"
#include "engine/publish/zmtp_peer.h"
#include "runtime/tier/tier_support.h"
#include "support/pipe.h"

namespace quire {
namespace {

using Frames = std::vector<std::string>;

// An engine's publisher at ipc://FOLDER/events, and its replays at ipc://FOLDER/replay.
class PublishedEvents {
 public:
  explicit PublishedEvents(KvEventsOptions options = {}, std::shared_ptr<Logger> logger = {}) {
    options.enable_kv_cache_events = true;
    options.endpoint = "ipc://" + path("events");
    options.replay_endpoint = "ipc://" + path("replay");
    if (options.topic.empty()) options.topic = "kv-events";
    auto made = KvEventPublisher::create(options, {}, std::move(logger));
    if (made) publisher_ = *std::move(made);
    if (!made) EXPECT_EQ(made.error().code, ErrorCode::unsupported) << made.error().to_string();
  }

  // Returns false if this build has no ZeroMQ.
  [[nodiscard]] bool is_made() const { return publisher_ != nullptr; }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_.file(name); }
  KvEventPublisher& operator*() { return *publisher_; }
  KvEventPublisher* operator->() { return publisher_.get(); }

  // Publishes a batch with this block size, and waits until the publisher's thread has handled it.
  void publish(std::uint32_t block_size) {
    const auto count = [this] { return publisher_->num_published() + publisher_->num_without_subscriber() + publisher_->num_dropped(); };
    const std::uint64_t before = count();
    BlockStored stored;
    stored.block_size = block_size;
    publisher_->publish(std::vector<KvEvent>{stored});
    while (count() == before) std::this_thread::yield();
  }
  // Publishes until the publisher knows of the subscription, or of its end.
  void publish_until(bool has_subscriber) {
    while (true) {
      const std::uint64_t before = publisher_->num_published();
      publish(1);
      if ((publisher_->num_published() > before) == has_subscriber) return;
    }
  }

 private:
  test::TempFolder folder_;
  std::unique_ptr<KvEventPublisher> publisher_;
};

std::string sequence_bytes(std::uint64_t number) {
  std::string bytes;
  for (unsigned shift = 64; shift > 0; shift -= 8) bytes += static_cast<char>(number >> (shift - 8));
  return bytes;
}

std::uint64_t number_of(const std::string& sequence) {
  std::uint64_t number = 0;
  for (const char byte : sequence) number = number << 8U | static_cast<std::uint8_t>(byte);
  return number;
}

// Returns the block size of the batch's event, which is below 128. It follows the empty lists of hashes and tokens.
int mark_of(const std::string& batch) {
  const std::size_t at = batch.find("BlockStored\x90\xc0\x90");
  return at == std::string::npos ? -1 : static_cast<std::uint8_t>(batch.at(at + 14));
}

// Returns the next batch after the batches of publish_until().
Frames receive_marked(ZmtpPeer& router) {
  Frames frames = router.receive();
  while (frames.size() == 3 && mark_of(frames[2]) == 1) frames = router.receive();
  EXPECT_EQ(frames.size(), 3U);
  frames.resize(3);
  return frames;
}

#define SKIP_WITHOUT_ZEROMQ(events) \
  if (!(events).is_made()) GTEST_SKIP() << "built without ZeroMQ"

TEST(KvEventSubscriber, ReceivesTopicSequenceAndBatch) {
  PublishedEvents events;
  SKIP_WITHOUT_ZEROMQ(events);
  for (int i = 0; i < 3; ++i) events.publish(1);
  EXPECT_EQ(events->num_published(), 0U);
  EXPECT_EQ(events->num_without_subscriber(), 3U);
  ZmtpPeer router(events.path("events"), "SUB");
  router.subscribe("kv");
  events.publish_until(true);
  EXPECT_EQ(events->num_published(), 1U);
  const std::uint64_t first = events->num_without_subscriber();
  events.publish(42);
  const Frames marked = receive_marked(router);
  EXPECT_EQ(marked[0], "kv-events");
  EXPECT_EQ(marked[1], sequence_bytes(first + 1)) << "the sequence counts all batches";
  EXPECT_EQ(mark_of(marked[2]), 42);
  router.unsubscribe("kv");
  events.publish_until(false);
  EXPECT_EQ(events->num_dropped(), 0U);
}

TEST(KvEventSubscriber, OnlyPrefixesOfTheTopicCount) {
  PublishedEvents events;
  SKIP_WITHOUT_ZEROMQ(events);
  ZmtpPeer other(events.path("events"), "SUB");
  for (const char* topic : {"other", "kv-events-2", "events"}) other.subscribe(topic);
  ZmtpPeer router(events.path("events"), "SUB");
  router.subscribe("never");
  for (int i = 0; i < 20; ++i) events.publish(1);
  EXPECT_EQ(events->num_published(), 0U);
  router.subscribe("");
  events.publish_until(true);
  EXPECT_EQ(router.receive().at(0), "kv-events");
}

// The publisher remembers no longer prefixes, so that clients cannot fill its memory. Such a subscriber still receives batches.
TEST(KvEventSubscriber, PrefixesBeyond255BytesAreNotCounted) {
  KvEventsOptions options;
  options.topic = std::string(300, 't');
  PublishedEvents events(options);
  SKIP_WITHOUT_ZEROMQ(events);
  ZmtpPeer router(events.path("events"), "SUB");
  router.subscribe("other");
  router.subscribe(options.topic.substr(0, 256));
  for (int i = 0; i < 20; ++i) events.publish(1);
  EXPECT_EQ(events->num_published(), 0U);
  router.subscribe(options.topic.substr(0, 255));
  events.publish_until(true);
  EXPECT_EQ(router.receive().at(0), options.topic);
}

TEST(KvEventSubscriber, ReplaysTheBatchesFromASequenceOn) {
  for (const char* format : {"0.19.0", "0.32.0"}) {
    SCOPED_TRACE(format);
    KvEventsOptions options;
    options.buffer_steps = 3;
    options.format = format;
    PublishedEvents events(options);
    SKIP_WITHOUT_ZEROMQ(events);
    for (std::uint32_t mark = 10; mark < 15; ++mark) events.publish(mark);
    const bool has_topic = std::string_view(format) == "0.32.0";
    ZmtpPeer router(events.path("replay"), "DEALER");
    // Messages of another form get no answer.
    for (const Frames& wrong :
         std::vector<Frames>{{sequence_bytes(0)}, {"x", sequence_bytes(0)}, {"", "short"}, {"", sequence_bytes(0), ""}})
      router.send(wrong);
    for (const std::uint64_t first : {0U, 2U, 3U, 4U, 5U}) {
      router.send({"", sequence_bytes(first)});
      for (std::uint64_t sequence = std::max<std::uint64_t>(first, 2); sequence < 5; ++sequence) {
        const Frames frames = router.receive();
        ASSERT_EQ(frames.size(), has_topic ? 4U : 3U);
        EXPECT_EQ(frames[0], "");
        if (has_topic) EXPECT_EQ(frames[1], "kv-events");
        EXPECT_EQ(number_of(frames[frames.size() - 2]), sequence);
        if (!has_topic) EXPECT_EQ(mark_of(frames.back()), 10 + static_cast<int>(sequence));
      }
      const Frames end = router.receive();
      EXPECT_EQ(end, has_topic ? (Frames{"", "", std::string(8, '\xff'), ""}) : (Frames{"", std::string(8, '\xff'), ""}));
    }
  }
}

TEST(KvEventSubscriber, AsksForASequenceOfSeveralBytes) {
  KvEventsOptions options;
  options.buffer_steps = 400;
  PublishedEvents events(options);
  SKIP_WITHOUT_ZEROMQ(events);
  for (int i = 0; i < 259; ++i) events.publish(5);
  ZmtpPeer router(events.path("replay"), "DEALER");
  for (const std::uint64_t first : {257U, 258U, 259U, 1U << 16U, 1U << 24U}) {
    router.send({"", sequence_bytes(first)});
    for (std::uint64_t sequence = first; sequence < 259; ++sequence) {
      const Frames frames = router.receive();
      ASSERT_EQ(frames.size(), 3U);
      EXPECT_EQ(number_of(frames[1]), sequence);
    }
    EXPECT_EQ(router.receive(), (Frames{"", std::string(8, '\xff'), ""})) << first;
  }
}

TEST(KvEventSubscriber, ReceivesTheBatchesInTheFormThatIsSet) {
  for (const auto& [format, use_int] : {std::pair("0.19.0", true), {"0.19.0", false}, {"0.32.0", true}}) {
    KvEventsOptions options;
    options.format = format;
    options.use_int_block_hashes = use_int;
    PublishedEvents events(options);
    SKIP_WITHOUT_ZEROMQ(events);
    ZmtpPeer router(events.path("events"), "SUB");
    router.subscribe("");
    events.publish_until(true);
    const double before_s = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    const std::vector<KvEvent> removed = {BlockRemoved{.block_hash = KvEventHash(32, 7)}};
    events->publish(removed);
    Frames frames;
    while (frames.size() < 3 || !frames[2].contains("BlockRemoved")) {
      frames = router.receive();
      ASSERT_EQ(frames.size(), 3U);
    }
    std::string wanted;
    append_event_batch(wanted, 0.0, removed, 0,
                       {.format = std::string_view(format) == "0.32.0" ? KvEventFormat::vllm_0_32_0 : KvEventFormat::vllm_0_19_0,
                        .hashes = use_int ? KvHashForm::integer : KvHashForm::bytes,
                        .groups = {}});
    EXPECT_EQ(frames[2].substr(10), wanted.substr(10)) << "all but the time";
    const double time_s = std::bit_cast<double>(number_of(frames[2].substr(2, 8)));
    EXPECT_GE(time_s, before_s - 1.0);
    EXPECT_LE(time_s, before_s + 600.0);
  }
}

TEST(KvEventSubscriber, AStopSendsTheWaitingBatches) {
  auto events = std::make_unique<PublishedEvents>();
  SKIP_WITHOUT_ZEROMQ(*events);
  ZmtpPeer router(events->path("events"), "SUB");
  router.subscribe("");
  events->publish_until(true);
  BlockStored stored;
  for (stored.block_size = 20; stored.block_size < 50; ++stored.block_size) (**events).publish(std::vector<KvEvent>{stored});
  std::thread stops([&] { events.reset(); });
  for (int mark = 20; mark < 50; ++mark) EXPECT_EQ(mark_of(receive_marked(router)[2]), mark);
  stops.join();
}

TEST(KvEventSubscriber, ARouterMayBindTheEndpoint) {
  const test::TempFolder folder;
  Pipe pipe;
  auto logger = std::make_shared<Logger>(LogOptions{.descriptor = pipe.writer()});
  const int listener = ZmtpPeer::listen_at(folder.file("router"));
  KvEventsOptions options;
  options.enable_kv_cache_events = true;
  options.endpoint = ">ipc://" + folder.file("router");
  options.topic = "t";
  auto made = KvEventPublisher::create(options, {}, std::move(logger));
  if (!made && made.error().code == ErrorCode::unsupported) {
    ::close(listener);
    GTEST_SKIP() << "built without ZeroMQ";
  }
  ASSERT_TRUE(made.has_value()) << made.error().to_string();
  ZmtpPeer router(listener, "SUB");
  router.subscribe("");
  const std::vector<KvEvent> cleared = {AllBlocksCleared()};
  while ((*made)->num_published() == 0) {
    (*made)->publish(cleared);
    std::this_thread::yield();
  }
  EXPECT_EQ(router.receive().at(0), "t");
  made->reset();
  const std::vector<std::string> lines = pipe.lines();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_TRUE(lines[0].contains("kv_events_begin endpoint=ipc://" + folder.file("router") + " how=connected")) << lines[0];
}

TEST(KvEventPublisher, LogsWhereItPublishes) {
  Pipe pipe;
  auto logger = std::make_shared<Logger>(LogOptions{.descriptor = pipe.writer()});
  std::string path;
  {
    PublishedEvents events({}, std::move(logger));
    SKIP_WITHOUT_ZEROMQ(events);
    path = events.path("events");
  }
  const std::vector<std::string> lines = pipe.lines();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_TRUE(lines[0].contains(fmt::format("kv_events_begin endpoint=ipc://{} how=bound", path))) << lines[0];
}

TEST(KvEventPublisher, IsNullWhenEventsAreOff) {
  for (const bool enabled : {false, true}) {
    KvEventsOptions options;
    options.enable_kv_cache_events = enabled;
    options.publisher = "null";
    const auto made = KvEventPublisher::create(options, {}, nullptr);
    ASSERT_TRUE(made.has_value());
    EXPECT_EQ(*made, nullptr);
  }
}

TEST(KvEventPublisher, ReportsTheEndpointThatCannotBeUsed) {
  const test::TempFolder folder;
  const auto error_of = [](const std::string& endpoint, const std::string& replay) {
    KvEventsOptions options;
    options.enable_kv_cache_events = true;
    options.endpoint = endpoint;
    options.replay_endpoint = replay;
    const auto made = KvEventPublisher::create(options, {}, nullptr);
    return made ? Error{ErrorCode::not_found, "none", "", ""} : made.error();
  };
  const Error wrong = error_of("no-address", "");
  if (wrong.code == ErrorCode::unsupported) GTEST_SKIP() << "built without ZeroMQ";
  EXPECT_EQ(wrong.code, ErrorCode::io);
  EXPECT_EQ(wrong.to_string(), "endpoint: 'no-address' cannot be bound: Invalid argument; use another endpoint, such as tcp://*:5557");
  EXPECT_EQ(error_of(">no-address", "").to_string(),
            "endpoint: 'no-address' cannot be connected to: Invalid argument; use another endpoint, such as tcp://*:5557");
  EXPECT_EQ(error_of("ipc://" + folder.file("a"), "no-address").to_string(),
            "replay_endpoint: 'no-address' cannot be bound: Invalid argument; use another endpoint, such as tcp://*:5557");
  // A port that another socket has bound.
  const int taken = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(taken, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(taken, 1), 0);
  socklen_t size = sizeof address;
  ASSERT_EQ(::getsockname(taken, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string endpoint = fmt::format("tcp://127.0.0.1:{}", ntohs(address.sin_port));
  EXPECT_EQ(
      error_of(endpoint, "").to_string(),
      fmt::format("endpoint: '{}' cannot be bound: Address already in use; use another endpoint, such as tcp://*:5557; if a router has "
                  "bound this one, put '>' before it to connect",
                  endpoint));
  EXPECT_EQ(
      error_of("ipc://" + folder.file("b"), endpoint).to_string(),
      fmt::format("replay_endpoint: '{}' cannot be bound: Address already in use; use another endpoint, such as tcp://*:5557", endpoint));
  ::close(taken);
}

}  // namespace
}  // namespace quire
