// Measures a checkpoint of a core with 100,000 blocks that all have a block hash: bytes, and milliseconds to write and to read it.
//
//   checkpoint_bench [RUNNING...]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "quire/core.h"

namespace {

using namespace quire;

constexpr std::uint32_t kBlockSize = 16, kNumBlocks = 100'000, kRounds = 21;

[[noreturn]] void fail(const Error& error) {
  fmt::print(stderr, "{}\n", error.to_string());
  std::exit(1);
}

// Returns the prompt length with which the running requests hold half of the blocks.
std::uint32_t prompt_tokens(std::uint32_t num_running) {
  return kNumBlocks / 2 / num_running * kBlockSize - 1;
}

CoreConfig make_config(std::uint32_t num_running) {
  CoreConfig config;
  config.scheduler.max_num_seqs = num_running;
  config.scheduler.max_num_waiting = num_running;
  config.scheduler.max_num_batched_tokens = kNumBlocks * kBlockSize;
  config.scheduler.max_model_len = prompt_tokens(num_running) + 1000;
  config.block_size = kBlockSize;
  config.report.log_stats = config.report.count_common_prefix = false;
  config.prefix_cache.hash = HashAlgorithm::canonical;
  config.kv.num_blocks = kNumBlocks;
  config.kv.groups.push_back({.layer_names = {}, .spec = FullAttentionSpec{}, .layer_specs = {}});
  return config;
}

void add(Core& core, std::uint32_t id, std::uint32_t num_tokens) {
  std::vector<TokenId> prompt(num_tokens);
  for (std::uint32_t i = 0; i < num_tokens; ++i) prompt[i] = static_cast<TokenId>((std::uint64_t{id} * 7919 + i * 31) % 50'000);
  if (const auto added = core.add({.id = RequestId{id}, .prompt = prompt, .max_tokens = 900}); !added.has_value()) fail(added.error());
}

// Runs one step: schedule(), then apply() with one token per sampling request.
void step(Core& core) {
  std::vector<SampledToken> sampled;
  const StepPlan& plan = core.schedule();
  for (const ScheduledRequest& s : plan.scheduled)
    if (s.samples) sampled.push_back({s.id, TokenId{11}});
  if (const auto applied = core.apply({.step = plan.step, .sampled = sampled}); !applied.has_value()) fail(applied.error());
}

double ms_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void measure(std::uint32_t num_running) {
  const CoreConfig config = make_config(num_running);
  const auto core = Core::create(config);
  if (!core.has_value()) fail(core.error());
  // The requests of the first round end, and their blocks stay in the prefix cache.
  for (std::uint32_t round = 0; round < 2; ++round) {
    for (std::uint32_t i = 0; i < num_running; ++i) add(**core, round * num_running + i, prompt_tokens(num_running));
    for (int steps = 0; steps < 3; ++steps) step(**core);
    for (std::uint32_t i = 0; round == 0 && i < num_running; ++i) (*core)->finish(RequestId{i}, RequestStatus::finished_aborted);
  }
  (void)(*core)->schedule();
  std::vector<double> writes, reads;
  std::size_t size = 0;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    auto begin = std::chrono::steady_clock::now();
    const std::vector<std::uint8_t> bytes = (*core)->checkpoint();
    writes.push_back(ms_since(begin));
    size = bytes.size();
    begin = std::chrono::steady_clock::now();
    const auto restored = Core::restore(config, {}, bytes);
    if (!restored.has_value()) fail(restored.error());
    reads.push_back(ms_since(begin));
  }
  const CoreCounters counters = (*core)->counters();
  fmt::print("{:7}  {:9}  {:11}  {:6.1f}  {:8.1f}  {:8.1f}\n", counters.num_running, counters.num_cached_blocks,
             num_running * prompt_tokens(num_running), static_cast<double>(size) / 1e6, median(writes), median(reads));
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::uint32_t> counts;
  for (int i = 1; i < argc; ++i) counts.push_back(static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10)));
  if (counts.empty()) counts = {64, 1024};
  if (std::ranges::any_of(counts, [](std::uint32_t count) { return count == 0 || count > kNumBlocks / 4; })) {
    fmt::print(stderr, "running: give numbers from 1 to {}\n", kNumBlocks / 4);
    return 2;
  }
  fmt::print("a checkpoint of a core with {} blocks and a plan in flight, medians of {}\n", kNumBlocks, kRounds);
  fmt::print("{:>7}  {:>9}  {:>11}  {:>6}  {:>8}  {:>8}\n", "running", "in cache", "their tokens", "MB", "write ms", "read ms");
  for (const std::uint32_t count : counts) measure(count);
}
