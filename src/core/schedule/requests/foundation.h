#pragma once
// What nearly all parts above the queues stand on: what is configured and asked, which blocks there are, who is known, who runs and waits.
#include "core/kv/kv_cache_manager.h"
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/queues.h"
#include "core/schedule/requests/requests.h"

namespace quire {

// A view of the scheduler's state (state.h), which outlives it.
struct Foundation {
  Context& context;
  KvCacheManager& kv;
  Requests& requests;
  Queues& queues;
};

}  // namespace quire
