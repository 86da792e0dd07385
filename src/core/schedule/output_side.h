#pragma once
// The memory behind StepOutcome, and what the output side keeps between steps. Vectors keep their capacity from step to step.
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/kv/encoder_cache_order.h"
#include "core/schedule/request.h"
#include "quire/core.h"

namespace quire {

struct OutputSide {
  // Of the outcome reported last.
  StepOutcome outcome;
  std::vector<RequestUpdate> updates;
  std::vector<TokenId> updated_tokens;
  std::vector<std::vector<RequestEvent>> updated_events;  // the first num_updated_events count
  std::size_t num_updated_events = 0;
  std::vector<RequestId> failed_ids;                         // as they were found
  std::vector<RequestId> failed_finishing, failed_reported;  // as they end, where they do
  std::vector<RequestId> retired;
  std::vector<KvEvent> kv_events;
  std::vector<RequestId> finished_ids;  // grouped by client
  std::vector<FinishedSet> finished_sets;
  SchedulerStats stats;
  std::vector<KvEvictionEvent> evictions;

  // Between two outcomes.
  std::vector<std::pair<std::uint32_t, RequestId>> ended;  // client and request, with include_finished_set
  std::vector<Request*> gone;                              // not known any more; destroyed once no outstanding plan names them
  std::vector<RequestId> retiring;                         // destroyed, and not reported yet

  // Within one call.
  std::vector<Request*> failed_loads;  // their results are skipped
  std::size_t num_failed_async = 0;    // the first so many of them wait for their blocks
  std::vector<Request*> ending;
  std::vector<RequestId> sent, received;  // with completions: what the result says and what follows from them
  std::vector<BlockId> not_loaded;
  std::vector<Request*> stopped_waiting;  // stopped by a late token, while not running
  bool stopped_running = false;           // `running` has requests that run no more
  bool counts_drafts = false;             // stats.spec_decoding has been counted in this step
  std::vector<BlockId> invalid, marked;   // invalid is ascending
  std::vector<std::uint32_t> to_evict;    // each once
  std::vector<BlockId> evicted;
  SmallIntSetOrder evict_order;
};

}  // namespace quire
