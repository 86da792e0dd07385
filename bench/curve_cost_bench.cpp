// Measures the cost of the curve (docs/curve.md) on the engine thread. Two cores, one with a sampler, get the same requests and take turns
// step by step. Prints microseconds per request of all steps, including adding and ending requests.
//
//   curve_cost_bench [PROMPT_TOKENS...]
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "quire/core.h"
#include "quire/lab/curve.h"

namespace {

using namespace quire;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kBlockSize = 16, kBlocks = 40'000, kRunning = 64, kOutputs = 32, kRequests = 4'000, kFamilies = 400;

CoreConfig config(std::uint32_t num_prompt_tokens) {
  CoreConfig config;
  config.scheduler.max_num_seqs = kRunning;
  config.scheduler.max_num_waiting = 2 * kRunning;
  config.scheduler.max_num_batched_tokens = 8192;
  config.scheduler.max_model_len = num_prompt_tokens + 2 * kOutputs;
  config.scheduler.async_scheduling = config.report.log_stats = config.report.count_common_prefix = false;
  config.block_size = kBlockSize;
  config.kv.num_blocks = kBlocks + 1;
  config.kv.groups.push_back({.layer_names = {}, .spec = FullAttentionSpec{}, .layer_specs = {}});
  return config;
}

class Side {
 public:
  Side(const CoreConfig& config, bool samples) {
    if (samples) sampler_ = std::make_unique<CurveSampler>(CurveOptions::of(config));
    core_ = std::move(Core::create(config, {.events = sampler_.get()}).value());
    if (samples) sampler_->follow(*core_);
  }

  void add(std::uint64_t id, std::span<const TokenId> prompt) {
    const auto begin = Clock::now();
    if (!core_->add({.id = RequestId{id}, .prompt = prompt, .max_tokens = kOutputs})) std::abort();
    spent_ += Clock::now() - begin;
  }

  void step() {
    const auto begin = Clock::now();
    const StepPlan& plan = core_->schedule({.now = 0.01 * static_cast<double>(++num_steps_)});
    spent_ += Clock::now() - begin;
    sampled_.clear();
    for (const ScheduledRequest& s : plan.scheduled)
      if (s.samples) sampled_.push_back({s.id, TokenId{11}});
    const auto then = Clock::now();
    if (!core_->apply({.step = plan.step, .sampled = sampled_}, {.now = 0.01 * static_cast<double>(num_steps_)})) std::abort();
    spent_ += Clock::now() - then;
  }

  [[nodiscard]] std::uint32_t num_open() const { return core_->counters().num_unfinished; }
  [[nodiscard]] double spent_us() const { return std::chrono::duration<double, std::micro>(spent_).count(); }
  [[nodiscard]] const CurveSampler& sampler() const { return *sampler_; }

 private:
  std::unique_ptr<CurveSampler> sampler_;  // null: no sampling
  std::unique_ptr<Core> core_;
  std::vector<SampledToken> sampled_;
  Clock::duration spent_{};
  std::uint64_t num_steps_ = 0;
};

// Fills a prompt. Its first half is the shared prefix of its family.
void fill(std::vector<TokenId>& prompt, std::uint64_t id) {
  const std::uint64_t family = id * 0x9E3779B97F4A7C15ULL >> 40U;
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    const std::uint64_t of = i < prompt.size() / 2 ? family % kFamilies : kFamilies + id;
    prompt[i] = static_cast<TokenId>((of * 7919 + i) % 30'000);
  }
}

void run(std::uint32_t num_prompt_tokens) {
  const CoreConfig made = config(num_prompt_tokens);
  Side off(made, false), on(made, true);
  std::vector<TokenId> prompt(num_prompt_tokens);
  for (std::uint64_t id = 0, steps = 0; id < kRequests || on.num_open() > 0; ++steps) {
    for (; id < kRequests && on.num_open() < 2 * kRunning; ++id) {
      fill(prompt, id);
      off.add(id, prompt);
      on.add(id, prompt);
    }
    // The order alternates, because the second core has warmer CPU caches.
    Side* sides[] = {&off, &on};
    sides[steps % 2]->step();
    sides[1 - steps % 2]->step();
  }
  const double without = off.spent_us() / kRequests, with = on.spent_us() / kRequests;
  const HitRateCurve curve = on.sampler().curve();
  fmt::print("{:13}  {:10.2f} {:10.2f} {:8.2f} {:7.2f} %  {:8.3g} {:8.1f} %\n", num_prompt_tokens, without, with, with - without,
             100.0 * (with - without) / without, curve.sampling_rate, 100.0 * curve.all.found_tokens / curve.all.query_tokens);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::uint32_t> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10)));
  if (sizes.empty()) sizes = {256, 2048, 8192};
  fmt::print("us of the core per request: {} of them, {} answer tokens each, {} at once, {} blocks\n", kRequests, kOutputs, kRunning,
             kBlocks);
  fmt::print("{:>13}  {:>10} {:>10} {:>8} {:>9}  {:>8} {:>10}\n", "prompt tokens", "without", "with", "more", "", "sampled", "found");
  for (const std::uint32_t size : sizes) run(size);
}
