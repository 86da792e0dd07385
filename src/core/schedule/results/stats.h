#pragma once
// Counts between two outcomes: vLLM's make_stats, SpecDecodingStats, and the finished requests of each client.
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

// Called within apply() and by Core::make_stats(), on the core's thread. Counts are per outcome: collect() resets them.
class Stats {
 public:
  Stats(const Context& context, KvCacheManager& kv, const Queues& queues, const EncoderScheduler& encoder, PrefixLookUp& look_up)
      : context_(context), kv_(kv), queues_(queues), encoder_(encoder), look_up_(look_up) {}

  // Starts a count of draft tokens: earlier counts belong to an earlier outcome.
  void begin() { counts_drafts_ = false; }
  void count_drafts(std::uint32_t num_drafts, std::uint32_t num_accepted);
  // Returns null without log_stats. Valid until the next call.
  const SchedulerStats* collect();
  // Removes all pairs (client and request) from `ended` and groups them by client, in the order of each client's first end. Valid until the
  // next call.
  std::span<const FinishedSet> collect_finished_sets(std::vector<std::pair<std::uint32_t, RequestId>>& ended);

  // Lists the members for checkpoints (schedule/checkpoint/state_archive.h). The binding must name every member to compile.
  template <class Archive, class Self>
  static void fields(Archive& /*form*/, Self& self) {
    // Draft tokens are counted and reported in one call; the rest belongs to the outcome.
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
  bool counts_drafts_ = false;           // stats_.spec_decoding has been counted in this step
  std::vector<RequestId> finished_ids_;  // grouped by client
  std::vector<FinishedSet> finished_sets_;
};

}  // namespace quire
