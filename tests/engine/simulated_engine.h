#pragma once
// Runs an engine around the simulated worker in every step mode, and computes what it must answer.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <iterator>
#include <map>
#include <memory>
#include <ostream>
#include <semaphore>
#include <string>
#include <vector>

#include "base/random.h"
#include "engine/collector.h"
#include "engine/engine_parts.h"
#include "engine/resolve_options.h"
#include "engine/tiers/kv_swap.h"
#include "runtime/worker/simulated_worker.h"
#include "support/rounds.h"
#include "support/sanitized.h"

namespace quire {

inline constexpr std::uint32_t kVocab = 200;
inline constexpr TokenId kEos = 199;
inline constexpr TokenId kPoison = 198;

inline ModelInfo simulated_model() {
  ModelInfo model;
  model.name = "simulated";
  model.num_layers = model.num_kv_heads = model.head_dim = 1;
  model.vocab_size = kVocab;
  model.context_length = 256;
  TokenizerSpec tokenizer;
  tokenizer.eog = {kEos};
  model.tokenizer = std::make_shared<const TokenizerSpec>(std::move(tokenizer));
  return model;
}

// Selects how steps follow each other.
struct Mode {
  const char* name;
  bool async_scheduling;
  std::uint32_t worker_threads;
  std::uint32_t num_drafts = 0;  // per request and step
  friend void PrintTo(const Mode& mode, std::ostream* out) { *out << mode.name; }
};

inline constexpr Mode kModes[] = {{"sync", false, 1},
                                  {"async", true, 1},
                                  {"async_overlapped", true, 2},
                                  {"drafts", false, 1, 3},
                                  {"drafts_async_overlapped", true, 2, 2}};

// Returns all modes. Short sanitizer runs skip the modes with a single worker thread.
inline std::vector<Mode> played_modes() {
  std::vector<Mode> modes(std::begin(kModes), std::end(kModes));
  if (kSanitized && !plays_all()) std::erase_if(modes, [](const Mode& mode) { return mode.worker_threads == 1; });
  return modes;
}

inline std::string mode_name(const testing::TestParamInfo<Mode>& info) {
  return info.param.name;
}

struct Setup {
  EngineOptions options;
  TokenId poison = -1;
  std::function<void(const StepPlan&)> before_step = {};
  ModelInfo model = simulated_model();
  EngineSeams seams = {};
  KvTiers tiers = {};
  bool tolerates_garbage = false;
  // Wraps the memory to which preempted requests are swapped out.
  std::function<std::shared_ptr<Transport>(std::shared_ptr<Transport>)> swap_through = {};
  std::function<TokenId(std::span<const TokenId> history)> next_token = {};  // instead of simulated_token()
};

// Returns the windows by cache group, as the engine plans them.
inline std::vector<std::uint32_t> group_windows(const KvLayout& layout) {
  std::vector<std::uint32_t> windows;
  for (const KvGroupLayout& group : layout.groups) windows.push_back(group.sliding_window());
  return windows;
}

// Returns the swap with as many slots as the options allow, for blocks of the simulated worker; null without swapping.
inline std::shared_ptr<KvSwap> simulated_swap(const ResolvedEngine& resolved) {
  const EngineOptions& options = resolved.options;
  if (!options.kv_swap.is_on()) return nullptr;
  KvLayout layout = resolved.layout;
  const std::uint32_t num_near = num_memory_swap_slots(options.kv_swap, layout);
  layout.page_bytes = {std::uint64_t{options.cache.block_size} * sizeof(std::uint64_t)};
  for (KvGroupLayout& group : layout.groups) group.layers.resize(1);
  KvSwapOptions swap = options.kv_swap;
  swap.bytes = num_near * layout.page_bytes[0];
  return KvSwap::create(swap, layout).value();
}

inline std::unique_ptr<Engine> start(const Mode& mode, Setup setup) {
  setup.options.scheduler.async_scheduling = mode.async_scheduling;
  setup.options.speculation.num_speculative_tokens = mode.num_drafts;
  setup.options.cache.num_blocks = setup.options.cache.num_blocks == 0 ? 200 : setup.options.cache.num_blocks;
  const ResolvedEngine resolved = resolve_options(setup.options, setup.model, {1, 0}).value();
  const EngineOptions& options = resolved.options;
  const std::shared_ptr<KvSwap> swap = simulated_swap(resolved);
  std::shared_ptr<Transport> transport = swap == nullptr ? setup.seams.transport : swap->transport_with(setup.seams.transport);
  if (setup.swap_through) transport = setup.swap_through(std::move(transport));
  SimulatedWorkerOptions worker{.limits = resolved.limits,
                                .block_size = options.cache.block_size,
                                .num_blocks = options.cache.num_blocks,
                                .vocab_size = kVocab,
                                .poison = setup.poison,
                                .tolerates_garbage = setup.tolerates_garbage,
                                .before_step = std::move(setup.before_step),
                                .next_token = std::move(setup.next_token),
                                .num_spec_tokens = mode.num_drafts,
                                .num_threads = mode.worker_threads,
                                .windows = group_windows(resolved.layout),
                                .transport = std::move(transport)};
  return make_engine(resolved, {std::make_unique<SimulatedWorker>(std::move(worker)), setup.seams, setup.tiers, swap}).value();
}

// Makes an engine whose worker is missing one of its capabilities.
inline std::unique_ptr<Engine> engine_without(bool WorkerCapabilities::* missing) {
  class LesserWorker final : public SimulatedWorker {
   public:
    LesserWorker(SimulatedWorkerOptions options, bool WorkerCapabilities::* missing)
        : SimulatedWorker(std::move(options)), lacking_(missing) {}
    [[nodiscard]] WorkerCapabilities capabilities() const override {
      WorkerCapabilities can = SimulatedWorker::capabilities();
      can.*lacking_ = false;
      return can;
    }

   private:
    bool WorkerCapabilities::* lacking_;
  };
  EngineOptions options;
  options.cache.num_blocks = 20;
  const ResolvedEngine resolved = resolve_options(options, simulated_model(), {1, 0}).value();
  SimulatedWorkerOptions worker{
      .limits = resolved.limits, .block_size = resolved.options.cache.block_size, .num_blocks = 20, .vocab_size = kVocab};
  return make_engine(resolved, {std::make_unique<LesserWorker>(std::move(worker), missing)}).value();
}

struct Expected {
  std::vector<TokenId> tokens;
  FinishReason reason = FinishReason::length;
  TokenId stop_token = -1;
};

inline Expected expected(const EngineRequest& request, TokenId poison = -1) {
  Expected answer;
  std::vector<TokenId> history = request.prompt;
  while (answer.tokens.size() < request.sampling.max_tokens && history.size() < 256) {
    if (history.back() == poison) {
      answer.reason = FinishReason::error;
      return answer;
    }
    history.push_back(simulated_token(history, kVocab));
    answer.tokens.push_back(history.back());
    const bool is_stop = std::ranges::count(request.sampling.stop_token_ids, history.back()) > 0;
    if (answer.tokens.size() >= request.sampling.min_tokens && ((history.back() == kEos && !request.sampling.ignore_eos) || is_stop)) {
      answer.reason = FinishReason::stop;
      answer.stop_token = history.back();
      return answer;
    }
  }
  return answer;
}

inline EngineRequest make_request(std::uint32_t length, std::uint32_t max_tokens, TokenId first = 1) {
  EngineRequest request;
  for (std::uint32_t i = 0; i < length; ++i) request.prompt.push_back((first + static_cast<TokenId>(i)) % 150);
  request.sampling.max_tokens = max_tokens;
  return request;
}

// Makes prompts of a few families, so that requests share prefixes.
inline EngineRequest random_request(Random& random) {
  EngineRequest request;
  const std::uint64_t family = random.below(4);
  const std::uint64_t shared = random.below(50);
  for (std::uint64_t i = 0; i < shared; ++i) request.prompt.push_back(static_cast<TokenId>((family * 31 + i) % 190));
  for (std::uint64_t i = random.below(20) + 1; i > 0; --i) request.prompt.push_back(static_cast<TokenId>(random.below(198)));
  request.sampling.max_tokens = static_cast<std::uint32_t>(random.between(1, 60));
  request.sampling.ignore_eos = random.chance(0.5);
  if (random.chance(0.3)) request.sampling.stop_token_ids = {static_cast<TokenId>(random.below(190))};
  if (random.chance(0.2)) request.sampling.logprobs = 2;
  if (random.chance(0.2)) request.cache_salt = "salt";
  return request;
}

inline void expect_equal(const Collector::Answer& answer, const Expected& wanted) {
  EXPECT_EQ(answer.tokens, wanted.tokens);
  EXPECT_EQ(answer.reason, wanted.reason);
  EXPECT_EQ(answer.stop_token, wanted.stop_token);
  EXPECT_EQ(answer.num_finals, 1U);
  EXPECT_EQ(answer.num_outputs_after_final, 0U);
}

// Submits `count` random requests together and checks the answers. The sink must outlive the engine, or its stop().
inline void expect_random_answers(Engine& engine, Collector& sink, std::uint64_t seed, std::uint32_t count) {
  Random random(seed);
  std::map<RequestId, Expected> wanted;
  for (std::uint32_t i = 0; i < count; ++i) {
    const EngineRequest request = random_request(random);
    wanted[engine.submit(request, sink).value()] = expected(request);
  }
  for (const auto& [id, answer] : wanted) expect_equal(sink.wait(id), answer);
}

// Receives the answer to a control call.
class Answered {
 public:
  ControlCallback callback() {
    return [promise = promise_](Result<bool> answer) { promise->set_value(std::move(answer)); };
  }
  bool ready(int within_ms = 0) { return future_.wait_for(std::chrono::milliseconds(within_ms)) == std::future_status::ready; }
  Result<bool> wait() { return future_.get(); }

 private:
  std::shared_ptr<std::promise<Result<bool>>> promise_ = std::make_shared<std::promise<Result<bool>>>();
  std::future<Result<bool>> future_ = promise_->get_future();
};

// Lets steps run one at a time.
struct Gate {
  std::counting_semaphore<> permits{0};
  std::atomic<bool> open = false;
  std::atomic<bool> is_full = false;  // a step waits because no permit is left
  void pass() {
    if (open || permits.try_acquire()) return;
    is_full = true;
    is_full.notify_all();
    permits.acquire();
    is_full = false;
  }
  void open_for_good() {
    open = true;
    permits.release();
  }
  // Blocks further steps while no step runs; one more may still pass.
  void close() { open = false; }
};

}  // namespace quire
