// Measures the scheduler: nanoseconds of wall time per running request and decode step (schedule() and apply(), one output token each).
//
//   scheduler_bench [--vllm 0.32.0] [RUNNING...]
//
// With --vllm the core makes the decisions of this version.
// - "as vLLM" does the work that vLLM's scheduler does by default: statistics of every step, the common prefix of the running requests (not
//   in 0.32.0, which does not count it either), and block hashes by SHA-256 over Python's pickle.
// - "lean" is the configuration of `quire serve`: neither statistics nor common prefix, and block hashes in quire's encoding.
// Both get prompts of 128 tokens and as many steps as vLLM in bench/vllm_scheduler.py (a whole number of blocks).
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "quire/core.h"

namespace {

using namespace quire;

constexpr std::uint32_t kPromptTokens = 128, kBlockSize = 16, kRounds = 11;

struct Work {
  bool as_vllm;
  std::uint32_t num_requests, num_steps;
  DecisionProfile decisions = DecisionProfile::vllm_0_19;
};

// Nanoseconds per running request and step.
struct Figures {
  double step;   // median step; 15 of 16 steps fill and allocate no block
  double block;  // median of the mean over 16 steps, which hash one block and allocate the next
};

[[noreturn]] void fail(const Error& error) {
  fmt::print(stderr, "{}\n", error.to_string());
  std::exit(1);
}

CoreConfig make_config(const Work& work) {
  CoreConfig config;
  config.decisions = work.decisions;
  config.scheduler.max_num_seqs = work.num_requests;
  config.scheduler.max_num_waiting = work.num_requests;
  config.scheduler.max_num_batched_tokens = std::max(8192U, work.num_requests);
  config.scheduler.max_model_len = 8192;
  config.scheduler.async_scheduling = false;
  config.scheduler.admit_oversized = true;  // max_tokens may exceed the cache, as with vLLM
  config.block_size = kBlockSize;
  config.report.log_stats = work.as_vllm;
  config.report.count_common_prefix = work.as_vllm && work.decisions == DecisionProfile::vllm_0_19;
  config.prefix_cache.hash = work.as_vllm ? HashAlgorithm::sha256 : HashAlgorithm::canonical;
  config.kv.num_blocks = work.num_requests * (kPromptTokens + work.num_steps + 100) / kBlockSize + 64;
  config.kv.groups.push_back({.layer_names = {}, .spec = FullAttentionSpec{}, .layer_specs = {}});
  return config;
}

std::unique_ptr<Core> start(const Work& work) {
  auto core = Core::create(make_config(work));
  if (!core.has_value()) fail(core.error());
  std::vector<TokenId> prompt(kPromptTokens);
  for (std::uint32_t i = 0; i < work.num_requests; ++i) {
    for (std::uint32_t j = 0; j < kPromptTokens; ++j) prompt[j] = static_cast<TokenId>((i * 7 + j) % 30000);
    NewRequest request;
    request.id = RequestId{i};
    request.prompt = prompt;
    request.max_tokens = work.num_steps + 2000;
    if (auto added = (*core)->add(request); !added.has_value()) fail(added.error());
  }
  return std::move(*core);
}

// Returns the nanoseconds of one schedule() and apply(); 0 for a step that still computes prompts.
double step(Core& core, const Work& work, std::vector<SampledToken>& sampled) {
  const auto begin = std::chrono::steady_clock::now();
  const StepPlan& plan = core.schedule();
  const auto planned = std::chrono::steady_clock::now();
  std::uint32_t num_tokens = 0;
  sampled.clear();
  for (const ScheduledRequest& s : plan.scheduled) {
    num_tokens += s.num_tokens;
    if (s.samples) sampled.push_back({s.id, TokenId{11}});
  }
  StepResult result;
  result.step = plan.step;
  result.sampled = sampled;
  const bool decodes = num_tokens == work.num_requests && plan.scheduled.size() == work.num_requests;
  const auto resumed = std::chrono::steady_clock::now();
  if (auto applied = core.apply(result); !applied.has_value()) fail(applied.error());
  const auto spent = (planned - begin) + (std::chrono::steady_clock::now() - resumed);
  return decodes ? std::chrono::duration<double, std::nano>(spent).count() : 0.0;
}

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void run(const Work& work, std::vector<double>& steps, std::vector<double>& blocks) {
  const auto core = start(work);
  std::vector<SampledToken> sampled;
  double block = 0.0;
  for (std::uint32_t done = 0; done < work.num_steps;) {
    const double spent = step(*core, work, sampled);
    if (spent == 0.0) continue;
    steps.push_back(spent);
    block += spent;
    if (++done % kBlockSize == 0) {
      blocks.push_back(block / kBlockSize);
      block = 0.0;
    }
  }
}

Figures measure(const Work& work) {
  std::vector<double> steps, blocks;
  for (std::uint32_t round = 0; round < kRounds; ++round) run(work, steps, blocks);
  return {median(steps) / work.num_requests, median(blocks) / work.num_requests};
}

// Returns the microseconds of Core::fork() for a request with this many computed tokens: the median over all rounds. Each child ends before
// the next fork.
double measure_fork(std::uint32_t num_tokens) {
  constexpr std::uint32_t kForks = 1001;
  CoreConfig config = make_config({false, 8, 0});
  config.kv.num_blocks = 2 * num_tokens / kBlockSize;
  config.scheduler.max_model_len = 2 * num_tokens;
  auto core = Core::create(config);
  if (!core.has_value()) fail(core.error());
  const std::vector<TokenId> prompt(num_tokens - 1, 7);
  NewRequest request;
  request.id = RequestId{0};
  request.prompt = prompt;
  request.max_tokens = 100;
  if (auto added = (*core)->add(request); !added.has_value()) fail(added.error());
  std::vector<SampledToken> sampled;
  (void)step(**core, {false, 1, 0}, sampled);
  std::vector<double> spent;
  for (std::uint32_t i = 1; i <= kForks; ++i) {
    ForkRequest child;
    child.id = RequestId{i};
    const auto begin = std::chrono::steady_clock::now();
    const auto forked = (*core)->fork(RequestId{0}, child);
    spent.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
    if (!forked.has_value()) fail(forked.error());
    (*core)->finish(child.id, RequestStatus::finished_aborted);
  }
  return median(spent);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::uint32_t> counts;
  DecisionProfile decisions = DecisionProfile::vllm_0_19;
  int first = 1;
  if (argc > 2 && std::string_view(argv[1]) == "--vllm") {
    const std::string_view version = argv[2];
    if (version != "0.19.0" && version != "0.32.0") {
      fmt::print(stderr, "--vllm: there are no decisions of '{}'; give 0.19.0 or 0.32.0\n", version);
      return 2;
    }
    if (version == "0.32.0") decisions = DecisionProfile::vllm_0_32;
    first = 3;
  }
  for (int i = first; i < argc; ++i) counts.push_back(static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10)));
  if (counts.empty()) counts = {1, 8, 64, 256, 1024};
  if (std::ranges::find(counts, 0U) != counts.end()) {
    fmt::print(stderr, "running: 0 requests cannot be measured; give positive numbers\n");
    return 2;
  }
  fmt::print("native core, ns per running request and decode step (wall; median step, and per step over a whole block)\n");
  fmt::print("{:>7}  {:>12} {:>12}  {:>12} {:>12}\n", "running", "as vLLM", "whole block", "lean", "whole block");
  for (const std::uint32_t count : counts) {
    const std::uint32_t num_steps = count < 1024 ? 304 : 152;
    const Figures full = measure({true, count, num_steps, decisions}), lean = measure({false, count, num_steps, decisions});
    fmt::print("{:7}  {:12.1f} {:12.1f}  {:12.1f} {:12.1f}\n", count, full.step, full.block, lean.step, lean.block);
  }
  fmt::print("fork of a request of 8000 tokens: {:.1f} us\n", measure_fork(8000));
}
