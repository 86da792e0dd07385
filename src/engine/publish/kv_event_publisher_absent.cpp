// In place of kv_event_publisher.cpp, where ZeroMQ is not installed.
#include "engine/publish/kv_event_publisher.h"

namespace quire {

Result<std::unique_ptr<KvEventPublisher>> KvEventPublisher::create(const KvEventsOptions& options, std::span<const KvCacheGroup> /*groups*/,
                                                                   std::shared_ptr<Logger> /*logger*/) {
  if (!options.is_on()) return nullptr;
  return fail(ErrorCode::unsupported, "publisher", "is zmq, and this was built without ZeroMQ",
              "install libzmq3-dev and cppzmq-dev, and build again");
}

}  // namespace quire
