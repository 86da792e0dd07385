// Random streams of events for the scheduler: the first bytes choose a configuration, the rest requests, steps, results and aborts. After
// each event everything that must hold is recomputed; at the end every request must finish and every block must be free.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "base/check.h"
#include "core/schedule/scheduler.h"

namespace {

using namespace quire;

class Input {
 public:
  explicit Input(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  std::uint32_t byte() {
    if (bytes_.empty()) {
      return 0;
    }
    const std::uint8_t value = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return value;
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

SchedulerConfig read_config(Input& in) {
  SchedulerConfig config;
  config.block_size = 1 + in.byte() % 5;
  config.num_blocks = 2 + in.byte() % 30;
  config.scheduler.max_num_seqs = 1 + in.byte() % 6;
  config.scheduler.max_num_batched_tokens = 1 + in.byte() % 40;
  config.scheduler.max_model_len = 2 + in.byte() % 40;
  config.scheduler.long_prefill_token_threshold = in.byte() % 6;
  config.scheduler.max_num_waiting = 1 + in.byte() % 16;
  const std::uint32_t flags = in.byte();
  config.enable_prefix_caching = (flags & 1) != 0;
  config.scheduler.enable_chunked_prefill = (flags & 2) != 0;
  config.scheduler.reserve_full_isl = (flags & 4) != 0;
  return config;
}

class Run {
 public:
  Run(Scheduler& scheduler, Input& in) : scheduler_(scheduler), in_(in) {}

  void events() {
    while (!in_.empty()) {
      const std::uint32_t event = in_.byte();
      switch (event % 8) {
        case 0:
        case 1:
          add();
          break;
        case 2:
          scheduler_.finish(RequestId{in_.byte() % (next_id_ + 1)}, FinishReason::abort);
          break;
        case 3:
          scheduler_.reset_prefix_cache();
          break;
        case 4:
        case 5:
        case 6:
          schedule();
          break;
        default:
          apply();
      }
      scheduler_.check_invariants();
    }
  }

  void drain() {
    for (int step = 0; scheduler_.has_work() || !plans_.empty(); ++step) {
      QUIRE_CHECK(step < 100000, "no progress");
      if (scheduler_.has_work()) {
        schedule();
      }
      apply();
    }
    scheduler_.check_invariants();
    QUIRE_CHECK(scheduler_.all_blocks_free(), "a block is lost");
  }

 private:
  void add() {
    std::vector<TokenId> prompt(in_.byte() % 45);
    const std::uint32_t start = in_.byte();
    for (std::size_t i = 0; i < prompt.size(); ++i) {
      prompt[i] = static_cast<TokenId>((start >> (i % 8)) & 1);
    }
    const TokenId stops[] = {1};
    NewRequest request{.id = RequestId{next_id_++},
                       .prompt = prompt,
                       .max_tokens = in_.byte() % 44,
                       .min_tokens = in_.byte() % 4,
                       .eos_ids = {},
                       .stop_token_ids = std::span(stops).first(in_.byte() % 2),
                       .sampling = nullptr,
                       .extra_keys = {}};
    request.extra_keys.cache_salt = in_.byte() % 8 == 0 ? "salt" : "";
    (void)scheduler_.add(request);
  }

  void schedule() {
    if (scheduler_.num_outstanding_plans() < kMaxOutstandingPlans) {
      plans_.push_back(scheduler_.schedule());
    }
  }

  void apply() {
    if (plans_.empty()) {
      return;
    }
    std::vector<SampledToken> sampled;
    for (const ScheduledRequest& s : plans_.front().scheduled) {
      if (s.samples) {
        sampled.push_back({s.id, static_cast<TokenId>(in_.byte() % 3)});
      }
    }
    scheduler_.apply({plans_.front().step, sampled});
    plans_.pop_front();
  }

  Scheduler& scheduler_;
  Input& in_;
  std::uint64_t next_id_ = 0;
  std::deque<StepPlan> plans_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input in({data, size});
  auto scheduler = Scheduler::create(read_config(in));
  if (scheduler) {
    Run run(**scheduler, in);
    run.events();
    run.drain();
  }
  return 0;
}
