// Replaces kv_event_publisher.cpp if ZeroMQ is not installed.
#include "engine/publish/kv_event_publisher.h"

namespace quire {

Result<std::unique_ptr<KvEventPublisher>> KvEventPublisher::create(const KvEventsOptions& options, std::span<const KvCacheGroup> /*groups*/,
                                                                   std::shared_ptr<Logger> /*logger*/) {
  if (!options.is_on()) return nullptr;
  return fail(ErrorCode::unsupported, "publisher", "is zmq, but this build of quire does not include ZeroMQ",
              "install libzmq3-dev and cppzmq-dev, and build quire again");
}

}  // namespace quire
