#pragma once
// Publishes KV cache events to routers over ZeroMQ as vLLM does. A PUB socket sends frames [topic][sequence][batch]; sequences have 8
// bytes, big endian, from 0. A ROUTER socket answers [""][first sequence] with the kept batches from that sequence on, and an end message
// (sequence ff x 8 and an empty batch).
#include <cstdint>
#include <memory>
#include <span>

#include "quire/base/kv_events.h"
#include "quire/base/kv_spec.h"
#include "quire/base/logger.h"
#include "quire/base/options.h"

namespace quire {

// The sockets belong to a separate thread. If that thread does not keep up, batches are dropped and counted. Subscribers then see a gap in
// the sequences, which no replay can fill.
class KvEventPublisher {
 public:
  // Returns null if the options turn events off. Errors name the field of vLLM's configuration; `unsupported`: built without ZeroMQ.
  // `groups` are the cache groups of the KV cache. `logger` may be null.
  static Result<std::unique_ptr<KvEventPublisher>> create(const KvEventsOptions& options, std::span<const KvCacheGroup> groups,
                                                          std::shared_ptr<Logger> logger);
  // Sends the waiting batches, within a second.
  virtual ~KvEventPublisher() = default;

  // Queues the events as one batch with the current time; does nothing without events. Called by one thread. Returns immediately.
  virtual void publish(std::span<const KvEvent> events) = 0;

  // Any thread may call these.
  [[nodiscard]] virtual std::uint64_t num_published() const = 0;           // batches with a subscriber
  [[nodiscard]] virtual std::uint64_t num_without_subscriber() const = 0;  // batches without a subscriber
  [[nodiscard]] virtual std::uint64_t num_dropped() const = 0;
};

}  // namespace quire
