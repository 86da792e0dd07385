#pragma once
// KV cache events for routers, over ZeroMQ as vLLM publishes them: PUB frames [topic][sequence][batch], sequences of 8 bytes, big
// endian, from 0; and a ROUTER that answers [""][first sequence] with the batches that are kept, from there on, and an end (sequence
// ff x 8, nothing behind it).
#include <cstdint>
#include <memory>
#include <span>

#include "quire/base/kv_events.h"
#include "quire/base/kv_spec.h"
#include "quire/base/logger.h"
#include "quire/base/options.h"

namespace quire {

// Its sockets belong to a thread of its own. Where that does not keep up, batches are dropped and counted: who subscribes sees a gap in the
// sequences, and cannot get it by asking either.
class KvEventPublisher {
 public:
  // Null: the options want none. Errors name the field of vLLM's configuration; `unsupported`: built without ZeroMQ. `groups`: of the KV
  // cache. `logger` may be null.
  static Result<std::unique_ptr<KvEventPublisher>> create(const KvEventsOptions& options, std::span<const KvCacheGroup> groups,
                                                          std::shared_ptr<Logger> logger);
  // Sends what waits, within a second.
  virtual ~KvEventPublisher() = default;

  // One thread. One batch, with the time of now; nothing for no events. Returns at once.
  virtual void publish(std::span<const KvEvent> events) = 0;

  // Any thread.
  [[nodiscard]] virtual std::uint64_t num_published() const = 0;  // batches
  [[nodiscard]] virtual std::uint64_t num_dropped() const = 0;
};

}  // namespace quire
