// Measures the cost of tiers in an engine whose worker uses all threads. Each step computes on all threads for two milliseconds, and writes
// keys and values for its tokens like a model with 23 KiB per token, at some GB per second. All prompts are new, so no block is hit and
// every block can be stored.
//   steps_bench [FOLDER [TURNS]]    default: the folder for temporary files, 10
// Engines with and without a tier take turns. Prints tokens per second, and the share of stored blocks.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/thread_pool.h"
#include "base/usable_cores.h"
#include "engine/engine_impl.h"
#include "engine/resolve_options.h"
#include "engine/tiers/disk_tier.h"
#include "engine/tiers/dram_tier.h"
#include "runtime/memory/block_tables.h"
#include "runtime/memory/kv_cache.h"
#include "runtime/transport/transfer_runner.h"

namespace {

using namespace quire;  // NOLINT(google-build-using-namespace): a program
using SteadyClock = std::chrono::steady_clock;

constexpr std::uint32_t kBlock = 16, kNumBlocks = 4000, kPromptTokens = 513, kStepTokens = 256;
constexpr std::uint32_t kFullBlocks = kPromptTokens / kBlock;
constexpr std::uint64_t kBytesPerToken = 23040;
constexpr std::chrono::microseconds kStep(2000);

KvLayout layout() {
  KvLayout layout{.num_blocks = kNumBlocks, .dtype = KvDtype::bf16, .groups = {}, .layers = {}, .page_bytes = {}};
  KvGroupLayout group{.spec = FullAttentionSpec{}, .block_size = kBlock, .kernel_block_size = kBlock, .layers = {}};
  for (std::uint32_t layer = 0; layer < 30; ++layer) {
    layout.page_bytes.push_back(kBlock * kBytesPerToken / 30);
    group.layers.push_back(layer);
    layout.layers.push_back({.group = 0});
  }
  layout.groups.push_back(group);
  return layout;
}

class BurningWorker final : public WorkerBase {
 public:
  BurningWorker(const EngineOptions& options, std::shared_ptr<Transport> transport)
      : cache_(KvCache::create(layout()).value()),
        tables_(std::vector<BlockTableLimits>{{.num_rows = options.scheduler.max_num_seqs,
                                               .max_model_len = options.scheduler.max_model_len,
                                               .num_blocks = kNumBlocks,
                                               .block_size = kBlock,
                                               .kernel_block_size = kBlock}}),
        num_rows_(options.scheduler.max_num_seqs),
        transfers_(std::move(transport), cache_.pages()),
        pages_(cache_.pages()),
        pool_(usable_cores()) {}

  [[nodiscard]] WorkerCapabilities capabilities() const override { return {.transfers = true}; }
  void set_notify(const std::function<void()>& notify) override { transfers_.set_notify(notify); }
  [[nodiscard]] std::optional<double> next_transfer_s() const override { return std::numeric_limits<double>::infinity(); }
  void start(const StepPlan& plan) override { plan_ = &plan; }

  WorkerResult finish() override {
    const auto begin = SteadyClock::now();
    for (const Slot slot : plan_->released) tables_.release(slot);
    for (const BlockTableDelta& delta : plan_->table_deltas) tables_.apply(delta);
    tables_.commit(num_rows_);
    transfers_.store(*plan_);
    transfers_.load(*plan_);
    written_.clear();
    results_.clear();
    for (const ScheduledRequest& one : plan_->scheduled) {
      for (std::uint32_t at = one.num_computed_tokens; at < one.num_computed_tokens + one.num_tokens; ++at)
        written_.push_back(tables_.row(0, one.slot)[at / kBlock].value * std::uint64_t{kBlock} + at % kBlock);
      if (one.samples) results_.push_back(one.id);
    }
    if (!written_.empty()) {
      const auto num_tensors = static_cast<std::uint32_t>(pages_.tensors.size());
      pool_.parallel_for(num_tensors, 1, [&](std::uint32_t first, std::uint32_t last, std::uint32_t) {
        for (std::uint32_t tensor = first; tensor < last; ++tensor) work(tensor);
      });
    }
    outcomes_.assign(results_.size(), SampleOutcome());
    requests_.clear();
    for (std::size_t i = 0; i < results_.size(); ++i) {
      RequestResult& result = requests_.emplace_back();
      result.id = results_[i];
      result.samples = {&outcomes_[i], 1};
    }
    transfers_.collect(collected_);
    WorkerResult answer{.step = {.step = plan_->step}, .requests = requests_, .transfers = collected_.totals};
    answer.step.completions = collected_.completions;
    answer.timings.forward_s = std::chrono::duration<double>(SteadyClock::now() - begin).count();
    num_tokens += plan_->num_scheduled_tokens;
    return answer;
  }

  std::atomic<std::uint64_t> num_tokens = 0;

 private:
  // Writes keys and values of one layer, then computes until the step has its length.
  void work(std::uint32_t tensor) {
    const std::uint64_t bytes = pages_.layout->page_bytes[tensor] / kBlock;
    for (const std::uint64_t token : written_) std::memset(pages_.tensors[tensor] + token * bytes, static_cast<int>(token), bytes);
    sink_ = compute(rounds_);
  }
  // Starts from a value that the compiler does not know, so that it cannot remove the loop.
  static double compute(std::uint64_t rounds) {
    double value = static_cast<double>(rounds % 7);
    for (std::uint64_t i = 0; i < rounds; ++i) value = std::fma(value, 0.999, 0.001);
    return value;
  }
  // Returns the CPU time of this thread, which excludes other processes.
  static double thread_s() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  // Returns the rounds of compute() per thread for its share of one tensor of a step. Writing keys and values takes additional time, so
  // steps are slightly longer than two milliseconds.
  static std::uint64_t calibrate() {
    constexpr std::uint64_t kRounds = 20'000'000;
    const double begin_s = thread_s();
    if (compute(kRounds) == 0.0) std::abort();
    const double round_s = (thread_s() - begin_s) / kRounds;
    return static_cast<std::uint64_t>(std::chrono::duration<double>(kStep).count() * usable_cores() / 30 / round_s);
  }

  static std::uint64_t rounds() {
    static const std::uint64_t calibrated = calibrate();  // same value for all engines
    return calibrated;
  }

  const std::uint64_t rounds_ = rounds();
  KvCache cache_;
  BlockTables tables_;
  std::uint32_t num_rows_;
  TransferRunner transfers_;
  KvPages pages_;
  ThreadPool pool_;
  const StepPlan* plan_ = nullptr;
  std::vector<std::uint64_t> written_;  // block and position in the block, as one number
  std::vector<RequestId> results_;
  std::vector<SampleOutcome> outcomes_;
  std::vector<RequestResult> requests_;
  CollectedTransfers collected_;
  std::atomic<double> sink_ = 0.0;
};

class Answers final : public OutputSink {
 public:
  void deliver(std::vector<RequestOutput> outputs) override {
    const std::lock_guard lock(mutex_);
    for (const RequestOutput& output : outputs) num_over_ += output.finished ? 1 : 0;
    changed_.notify_all();
  }
  void wait(std::uint64_t num_over) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_over_ >= num_over; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t num_over_ = 0;
};

ModelInfo model() {
  ModelInfo model;
  model.name = "steps";
  model.num_layers = 30;
  model.num_kv_heads = 3;
  model.head_dim = 64;
  model.vocab_size = 50000;
  model.context_length = 2048;
  model.tokenizer = std::make_shared<const TokenizerSpec>();
  return model;
}

// An engine with or without this tier, and its requests.
struct Side {
  std::string name;
  Answers answers;
  BurningWorker* worker = nullptr;
  std::unique_ptr<Engine> engine;
  std::uint64_t num_asked = 0;
  std::vector<double> tokens_per_s = {};

  Side(std::string side, const std::string& folder) : name(std::move(side)) {
    EngineOptions options;
    options.cache.num_blocks = kNumBlocks;
    options.scheduler.max_num_batched_tokens = kStepTokens;
    options.scheduler.max_num_seqs = 16;
    const ResolvedEngine resolved = resolve_options(options, model(), {usable_cores(), std::uint64_t{8} << 30U}).value();
    EngineParts parts;
    const CoreConfig& config = resolved.core;
    if (name == "dram") parts.tiers.push_back(DramTier::create({.bytes = std::uint64_t{2} << 30U}, config, layout()).value());
    if (name == "disk")
      parts.tiers.push_back(DiskTier::open({.folder = folder, .budget_bytes = std::uint64_t{2} << 30U}, config, layout(), {}).value());
    if (!connect_tiers(parts.tiers, parts.seams)) std::abort();
    auto made = std::make_unique<BurningWorker>(resolved.options, parts.seams.transport);
    worker = made.get();
    parts.worker = std::move(made);
    engine = make_engine(resolved, std::move(parts)).value();
  }

  // Sends new prompts, up to eight at the same time.
  void turn(std::uint32_t num_prompts) {
    const std::uint64_t first = num_asked;
    const auto begin = SteadyClock::now();
    for (; num_asked < first + num_prompts; ++num_asked) {
      EngineRequest request;
      for (std::uint32_t i = 0; i < kPromptTokens; ++i)
        request.prompt.push_back(static_cast<TokenId>((num_asked * 7919 + i * (num_asked % 97 + 1)) % 50000));
      request.sampling.max_tokens = 1;
      if (num_asked >= first + 8) answers.wait(num_asked - 7);
      if (!engine->submit(std::move(request), answers)) std::abort();
    }
    answers.wait(num_asked);
    const double seconds = std::chrono::duration<double>(SteadyClock::now() - begin).count();
    tokens_per_s.push_back(num_prompts * kPromptTokens / seconds);
  }
};

// Returns the geometric mean of the paired ratios, and half of its 95 % interval as a factor.
std::pair<double, double> mean_ratio(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0.0, squares = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double log = std::log(a[i] / b[i]);
    sum += log;
    squares += log * log;
  }
  const auto n = static_cast<double>(a.size());
  const double variance = std::max(0.0, (squares - sum * sum / n) / (n - 1));
  const double student = 1.96 + 2.4 / (n - 1) + 3.0 / ((n - 1) * (n - 1));  // approximates Student's t to 0.03 from five pairs on
  return {std::exp(sum / n), std::exp(student * std::sqrt(variance / n))};
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const std::string above = argc > 1 ? argv[1] : std::filesystem::temp_directory_path().string();
  const int num_turns = argc > 2 ? std::atoi(argv[2]) : 10;
  const std::string folder = above + "/quire-steps-bench";
  std::filesystem::remove_all(folder);
  {
    Side off("off", folder), dram("dram", folder), disk("disk", folder);
    const std::vector<Side*> sides{&off, &dram, &disk};
    for (Side* side : sides) side->turn(50);
    for (Side* side : sides) side->tokens_per_s.clear();
    for (int turn = 0; turn < num_turns; ++turn)
      for (std::size_t i = 0; i < sides.size(); ++i) sides[(static_cast<std::size_t>(turn) + i) % sides.size()]->turn(400);
    fmt::print("{:>5} {:>12} {:>16} {:>28} {:>16}\n", "", "tokens/s", "GB/s of KV", "over off (95 % interval)", "blocks stored");
    for (Side* side : sides) {
      const auto [ratio, half] = mean_ratio(side->tokens_per_s, off.tokens_per_s);
      const double speed = median(side->tokens_per_s);
      const std::vector<KvTierStats> tiers = side->engine->stats().kv_tiers;
      const double stored = tiers.empty() ? 0.0 : static_cast<double>(tiers[0].num_stored_blocks);
      const double full = static_cast<double>(side->num_asked) * kFullBlocks;
      fmt::print("{:>5} {:>12.0f} {:>16.2f} {:>9.3f} ({:.3f} to {:.3f}) {:>14.1f} %\n", side->name, speed, speed * kBytesPerToken / 1e9,
                 ratio, ratio / half, ratio * half, 100.0 * stored / full);
      side->engine->stop(60.0);
    }
  }
  std::filesystem::remove_all(folder);
}
