// Tests how many batches the publisher's thread queues, and the counters of dropped and unsubscribed batches.
#include "engine/publish/kv_event_publisher.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

namespace quire {
namespace {

std::unique_ptr<KvEventPublisher> publisher_with(std::uint32_t max_queue_size) {
  KvEventsOptions options;
  options.enable_kv_cache_events = true;
  options.endpoint = "inproc://events";
  options.max_queue_size = max_queue_size;
  auto made = KvEventPublisher::create(options, {}, nullptr);
  if (!made && made.error().code == ErrorCode::unsupported) return nullptr;
  EXPECT_TRUE(made.has_value()) << made.error().to_string();
  return *std::move(made);
}

// Waits until the publisher's thread has handled all batches.
std::uint64_t wait_for_count(const KvEventPublisher& publisher, std::uint64_t expected) {
  const auto begin = std::chrono::steady_clock::now();
  const auto count = [&] { return publisher.num_published() + publisher.num_without_subscriber() + publisher.num_dropped(); };
  while (count() < expected && std::chrono::steady_clock::now() - begin < std::chrono::seconds(60))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return count();
}

// Returns the events of a batch of about 100 KB. Sending a batch takes longer than the calls of publish() for the next batches.
std::vector<KvEvent> many_tokens() {
  BlockStored stored;
  stored.block_hashes.assign(2000, KvEventHash(32, 7));
  stored.token_ids.assign(32000, 5);
  stored.block_size = 16;
  return {stored};
}

TEST(KvEventPublisher, DropsAndCountsBatchesBeyondTheQueue) {
  const auto publisher = publisher_with(1);
  if (publisher == nullptr) GTEST_SKIP() << "built without ZeroMQ";
  const std::vector<KvEvent> events = many_tokens();
  constexpr std::uint64_t kBatches = 300;
  for (std::uint64_t i = 0; i < kBatches; ++i) publisher->publish(events);
  EXPECT_EQ(wait_for_count(*publisher, kBatches), kBatches);
  EXPECT_EQ(publisher->num_published(), 0U) << "there is no subscriber";
  EXPECT_GT(publisher->num_without_subscriber(), 0U);
  publisher->publish({});
  EXPECT_EQ(wait_for_count(*publisher, kBatches), kBatches) << "an empty event list makes no batch";
}

TEST(KvEventPublisher, DropsNothingWhileTheQueueHasRoom) {
  const auto publisher = publisher_with(300);
  if (publisher == nullptr) GTEST_SKIP() << "built without ZeroMQ";
  const std::vector<KvEvent> events = {AllBlocksCleared()};
  for (int i = 0; i < 300; ++i) publisher->publish(events);
  EXPECT_EQ(wait_for_count(*publisher, 300), 300U);
  EXPECT_EQ(publisher->num_dropped(), 0U);
}

}  // namespace
}  // namespace quire
