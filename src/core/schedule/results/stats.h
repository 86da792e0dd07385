#pragma once
// Statistics between two outcomes: vLLM's make_stats, SpecDecodingStats, and the finished requests of each client.
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/kv/kv_cache_manager.h"
#include "core/schedule/moves/look_up.h"
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/encoder_inputs.h"
#include "core/schedule/requests/queues.h"

namespace quire {

// Called within apply() and by Core::make_stats(), on the core's thread. The counts are per outcome: collect() resets them.
class Stats {
 public:
  Stats(const Context& context, KvCacheManager& kv, const Queues& queues, const EncoderScheduler& encoder, PrefixLookUp& look_up)
      : context_(context), kv_(kv), queues_(queues), encoder_(encoder), look_up_(look_up) {}

  // Resets the count of draft tokens: earlier counts belong to an earlier outcome.
  void begin() { counts_drafts_ = false; }
  void count_drafts(std::uint32_t num_drafts, std::uint32_t num_accepted);
  // Returns the statistics, or null without log_stats. Valid until the next call.
  const SchedulerStats* collect();
  // Groups the pairs of client and request in `ended` by client, in the order of each client's first end, and empties `ended`. Valid until
  // the next call.
  std::span<const FinishedSet> collect_finished_sets(std::vector<std::pair<std::uint32_t, RequestId>>& ended);

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& /*form*/, Self& self) {
    // Draft tokens are counted and reported within one call; the other members belong to the outcome.
    [[maybe_unused]] auto& [context, kv, queues, encoder, look_up, stats, evictions, counts_drafts, finished_ids, finished_sets] = self;
  }

 private:
  const Context& context_;
  KvCacheManager& kv_;
  const Queues& queues_;
  const EncoderScheduler& encoder_;
  PrefixLookUp& look_up_;
  SchedulerStats stats_;
  std::vector<KvEvictionEvent> evictions_;
  bool counts_drafts_ = false;           // draft tokens were counted since begin()
  std::vector<RequestId> finished_ids_;  // grouped by client
  std::vector<FinishedSet> finished_sets_;
};

}  // namespace quire
