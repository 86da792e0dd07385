#pragma once
// Publishes KV cache events to routers over ZeroMQ as vLLM does. A PUB socket sends frames [topic][sequence][batch]. Sequence numbers have
// 8 bytes, big endian, and start at 0. A ROUTER socket answers [""][first sequence] with the stored batches from that number on, followed
// by an end message (sequence ff x 8 and an empty batch).
#include <cstdint>
#include <memory>
#include <span>

#include "quire/base/kv_events.h"
#include "quire/base/kv_spec.h"
#include "quire/base/logger.h"
#include "quire/base/options.h"

namespace quire {

// The sockets belong to a separate thread. If that thread is too slow, batches are dropped and counted. Subscribers then see a gap in the
// sequence numbers, which no replay can fill.
class KvEventPublisher {
 public:
  // Creates a publisher. Returns null if the options turn events off. Errors name the field of vLLM's configuration; `unsupported`: the
  // build has no ZeroMQ. `groups` are the cache groups of the KV cache. `logger` may be null.
  static Result<std::unique_ptr<KvEventPublisher>> create(const KvEventsOptions& options, std::span<const KvCacheGroup> groups,
                                                          std::shared_ptr<Logger> logger);
  // Sends the waiting batches, for at most a second.
  virtual ~KvEventPublisher() = default;

  // Queues the events as one batch with the current time and returns immediately. Does nothing without events. Called by one thread.
  virtual void publish(std::span<const KvEvent> events) = 0;

  // May be called on any thread.
  [[nodiscard]] virtual std::uint64_t num_published() const = 0;           // batches with a subscriber
  [[nodiscard]] virtual std::uint64_t num_without_subscriber() const = 0;  // batches without a subscriber
  [[nodiscard]] virtual std::uint64_t num_dropped() const = 0;
};

}  // namespace quire
