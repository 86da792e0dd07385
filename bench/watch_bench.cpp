// Measures the cost of watching on the engine thread: the microseconds of a snapshot of a core with many blocks and requests, and of a step
// of a watched core. Compares the step, in turns, with the same core without a watcher.
//
//   watch_bench [BLOCKS [RUNNING]]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "quire/core.h"
#include "quire/watch.h"
#include "value.h"

namespace {

using namespace quire;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kBlockSize = 16, kSteps = 400, kShared = 64;  // kShared: blocks in the shared prefix of half of the requests

double us_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class Watched {
 public:
  Watched(std::uint32_t num_blocks, std::uint32_t num_requests) : num_requests_(num_requests) {
    CoreConfig config;
    config.scheduler.max_num_seqs = config.scheduler.max_num_waiting = num_requests;
    config.scheduler.max_num_batched_tokens = 65536;
    config.scheduler.max_model_len = 8192;
    config.scheduler.async_scheduling = config.report.log_stats = false;
    config.block_size = kBlockSize;
    config.kv.num_blocks = num_blocks;
    config.kv.groups.push_back({.layer_names = {}, .spec = FullAttentionSpec{}, .layer_specs = {}});
    core = value(Core::create(config));
    // Nine tenths of the blocks are in use.
    const std::uint32_t num_tokens = std::max(kBlockSize, num_blocks / num_requests * kBlockSize * 9 / 10 - kSteps);
    std::vector<TokenId> prompt(num_tokens);
    for (std::uint32_t i = 0; i < num_requests; ++i) {
      const bool is_shared = i % 2 == 0;
      for (std::uint32_t j = 0; j < num_tokens; ++j)
        prompt[j] = static_cast<TokenId>(is_shared && j < kShared * kBlockSize ? j : (i * 7919 + j) % 30000);
      value(core->add({.id = RequestId{i}, .name = "chatcmpl-0123456789abcdef01234567", .prompt = prompt, .max_tokens = 4 * kSteps}));
    }
    while (step() == 0.0) {
    }
  }

  // Runs one step. Returns the microseconds of schedule() and apply(); 0 while prompts are computed.
  double step() {
    const auto begin = Clock::now();
    const StepPlan& plan = core->schedule();
    sampled_.clear();
    for (const ScheduledRequest& s : plan.scheduled)
      if (s.samples) sampled_.push_back({s.id, TokenId{11}});
    const bool decodes = plan.num_scheduled_tokens == num_requests_ && sampled_.size() == num_requests_;
    StepResult result;
    result.step = plan.step;
    result.sampled = sampled_;
    value(core->apply(result));
    return decodes ? us_since(begin) : 0.0;
  }

  std::unique_ptr<Core> core;

 private:
  std::uint32_t num_requests_;
  std::vector<SampledToken> sampled_;
};

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, std::uint32_t fallback) {
    return argc > i ? static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10)) : fallback;
  };
  const std::uint32_t num_blocks = number(1, 100'000), num_requests = number(2, 1024);
  Watched alone(num_blocks, num_requests), watched(num_blocks, num_requests);
  WatchFrame frame;
  std::vector<double> looks, steps_alone, steps_watched;
  watched.core->watch(frame);
  for (std::uint32_t i = 0; i < kSteps; ++i) {
    steps_alone.push_back(alone.step());
    steps_watched.push_back(watched.step());
    const auto begin = Clock::now();
    watched.core->watch(frame);
    looks.push_back(us_since(begin));
  }
  const double look = median(looks), without = median(steps_alone), with = median(steps_watched);
  fmt::print("{} blocks, {} requests: a look {:.0f} us (least {:.0f}); a step {:.1f} us alone, {:.1f} us watched\n", num_blocks,
             num_requests, look, *std::ranges::min_element(looks), without, with);
}
