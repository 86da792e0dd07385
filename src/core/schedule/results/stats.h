#pragma once
// What is counted between two outcomes: vLLM's make_stats, SpecDecodingStats, and the finished requests of each client.
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

// Called within apply() and by Core::make_stats(), on the core's thread. What it counts is per outcome: collect() begins anew.
class Stats {
 public:
  Stats(const Context& context, KvCacheManager& kv, const Queues& queues, const EncoderScheduler& encoder, LookUp& look_up)
      : context_(context), kv_(kv), queues_(queues), encoder_(encoder), look_up_(look_up) {}

  // Drafts counted before belong to an earlier outcome.
  void begin() { counts_drafts_ = false; }
  void count_drafts(std::uint32_t num_drafts, std::uint32_t num_accepted);
  // Null without log_stats; valid until the next call.
  const SchedulerStats* collect();
  // Takes all out of `ended` (client and request), clients in the order of their first end; valid until the next call.
  std::span<const FinishedSet> collect_finished_sets(std::vector<std::pair<std::uint32_t, RequestId>>& ended);

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& /*form*/, Self& self) {
    // Drafts are counted and told in one call; the rest is of the outcome.
    [[maybe_unused]] auto& [context, kv, queues, encoder, look_up, stats, evictions, counts_drafts, finished_ids, finished_sets] = self;
  }

 private:
  const Context& context_;
  KvCacheManager& kv_;
  const Queues& queues_;
  const EncoderScheduler& encoder_;
  LookUp& look_up_;
  SchedulerStats stats_;
  std::vector<KvEvictionEvent> evictions_;
  bool counts_drafts_ = false;           // stats_.spec_decoding has been counted in this step
  std::vector<RequestId> finished_ids_;  // grouped by client
  std::vector<FinishedSet> finished_sets_;
};

}  // namespace quire
