// What the scheduler itself costs: nanoseconds per running request and decode step (schedule and apply, one output token each).
#include <fmt/format.h>
#include <time.h>

#include <cstdlib>
#include <vector>

#include "quire/core.h"

namespace {

using namespace quire;

// Of the process, so that neighbours on the machine do not count. ns.
double cpu_time() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

std::unique_ptr<Core> start(std::uint32_t num_requests, std::uint32_t num_steps) {
  CoreConfig config;
  config.scheduler.max_num_seqs = num_requests;
  config.scheduler.max_num_waiting = num_requests;
  config.scheduler.max_num_batched_tokens = 1U << 20;
  config.scheduler.max_model_len = num_steps + 1024;
  config.scheduler.async_scheduling = false;
  config.log_stats = false;
  config.count_common_prefix = false;  // as the engine sets it
  config.kv.num_blocks = num_requests * (config.scheduler.max_model_len / config.block_size + 1) + 1;
  config.kv.groups.push_back({.layer_names = {}, .spec = FullAttentionSpec{}, .layer_specs = {}});
  auto core = Core::create(config).value();
  for (std::uint32_t i = 0; i < num_requests; ++i) {
    const std::vector<TokenId> prompt(64, static_cast<TokenId>(i));
    NewRequest request;
    request.id = RequestId{i};
    request.prompt = prompt;
    request.max_tokens = num_steps + 100;
    if (auto added = core->add(request); !added) {
      fmt::print(stderr, "{}\n", added.error().to_string());
      std::exit(1);
    }
  }
  return core;
}

double nanoseconds_per_request(std::uint32_t num_requests) {
  const std::uint32_t num_steps = 2'000'000 / num_requests < 2000 ? 2000 : 20000;
  const auto core = start(num_requests, num_steps);
  std::vector<SampledToken> sampled;
  const auto run = [&](std::uint32_t steps) {
    for (std::uint32_t step = 0; step < steps; ++step) {
      const StepPlan& plan = core->schedule();
      sampled.clear();
      for (const ScheduledRequest& s : plan.scheduled) sampled.push_back({s.id, static_cast<TokenId>(step)});
      StepResult result;
      result.step = plan.step;
      result.sampled = sampled;
      if (!core->apply(result)) std::exit(1);
    }
  };
  run(16);
  const double begin = cpu_time();
  run(num_steps);
  return (cpu_time() - begin) / num_steps / num_requests;
}

}  // namespace

int main() {
  fmt::print("running  ns per request and decode step\n");
  for (std::uint32_t num_requests : {1U, 8U, 64U, 256U, 1024U})
    fmt::print("{:7}  {:.1f}\n", num_requests, nanoseconds_per_request(num_requests));
}
