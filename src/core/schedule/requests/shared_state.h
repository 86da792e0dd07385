#pragma once
// References that most parts of the scheduler need: context, blocks, requests and queues.
#include "core/kv/kv_cache_manager.h"
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/queues.h"
#include "core/schedule/requests/requests.h"

namespace quire {

// Refers to parts of the scheduler's state (state.h), which must outlive this object.
struct SharedState {
  Context& context;
  KvCacheManager& kv;
  Requests& requests;
  Queues& queues;
};

}  // namespace quire
