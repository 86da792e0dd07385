#pragma once
// Runs prompts step by step through a worker with a model.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/worker/worker.h"
#include "support/kv_layouts.h"

namespace quire {

inline constexpr std::uint32_t kBlocksPerSlot = 16, kSlots = 4;

struct DriveOptions {
  ActivationMode activations = ActivationMode::int16;
  KvDtype kv = KvDtype::bf16;
  std::uint32_t num_threads = 1;
  std::uint32_t max_model_len = 128;
};

// A worker with requests that a test puts into its slots: request i in slot i.
class PromptDrive {
 public:
  PromptDrive(const std::string& path, const DriveOptions& options) : block_tables_(kSlots) {
    auto pool = std::make_unique<ThreadPool>(options.num_threads);
    auto model = load_model(path, {.activations = options.activations,
                                   .max_num_batched_tokens = 256,
                                   .max_num_seqs = kSlots,
                                   .max_model_len = options.max_model_len,
                                   .num_cache_groups = 2,
                                   .pool = pool.get()});
    EXPECT_TRUE(model) << (model ? "" : model.error().to_string());
    auto cache =
        KvCache::create(test::kv_layout_of((*model)->info(), {.num_blocks = 2 * kSlots * kBlocksPerSlot + 1, .dtype = options.kv}));
    EXPECT_TRUE(cache);
    num_groups_ = static_cast<std::uint32_t>(cache->layout().groups.size());
    worker_ =
        std::make_unique<Worker>(WorkerLimits{kSlots, options.max_model_len, 256}, std::move(pool), std::move(*model), std::move(*cache));
  }

  // Admits a request in the next step.
  void admit(std::uint32_t slot, std::span<const TokenId> tokens, std::uint32_t num_prompt_tokens, const SamplingParams& params) {
    admitted_.push_back({RequestId{slot}, Slot{slot}, tokens, num_prompt_tokens, &params});
    block_tables_[slot].clear();
    for (std::uint32_t i = 0; i < num_groups_ * kBlocksPerSlot; ++i)
      block_tables_[slot].push_back(BlockId{1 + slot * 2 * kBlocksPerSlot + i});
    const auto num_blocks = static_cast<std::uint32_t>(tokens.size() / 16 + 1);
    for (std::uint32_t group = 0; group < num_groups_; ++group) {
      BlockTableDelta& delta = deltas_.emplace_back();
      delta.slot = Slot{slot};
      delta.group = group;
      delta.blocks = std::span(block_tables_[slot]).subspan(group * kBlocksPerSlot, num_blocks);
    }
  }
  void release(std::uint32_t slot) { released_.push_back(Slot{slot}); }
  void schedule(std::uint32_t slot, std::uint32_t computed, std::uint32_t count, bool samples) {
    ScheduledRequest& request = scheduled_.emplace_back();
    request.id = RequestId{slot};
    request.slot = Slot{slot};
    request.num_computed_tokens = computed;
    request.num_tokens = count;
    request.samples = samples;
    plan_.num_scheduled_tokens += count;
  }
  void schedule_pooling(std::uint32_t slot, std::uint32_t computed, std::uint32_t count, bool pools) {
    schedule(slot, computed, count, false);
    scheduled_.back().pools = pools;
  }
  WorkerResult step() {
    plan_.released = released_;
    plan_.admitted = admitted_;
    plan_.table_deltas = deltas_;
    plan_.scheduled = scheduled_;
    ++plan_.step.value;
    const WorkerResult result = worker_->execute(plan_);
    released_.clear();
    admitted_.clear();
    deltas_.clear();
    scheduled_.clear();
    plan_.num_scheduled_tokens = 0;
    return result;
  }
  // Stores the log probabilities at the positions of the prompt's tokens; [0] stays empty.
  static void take(const WorkerResult& result, RequestId id, std::vector<PositionLogprobs>& logprobs) {
    for (const RequestResult& request : result.requests)
      for (std::size_t i = 0; request.id == id && i < request.prompt_logprobs.size(); ++i)
        logprobs.at(request.first_prompt_token + i) = std::move(request.prompt_logprobs[i]);
  }
  // Returns the log probabilities of a whole prompt in slot 0, in chunks of `chunk` tokens.
  std::vector<PositionLogprobs> score(const std::vector<TokenId>& prompt, const SamplingParams& params, std::uint32_t chunk) {
    std::vector<PositionLogprobs> logprobs(prompt.size());
    const auto size = static_cast<std::uint32_t>(prompt.size());
    admit(0, prompt, size, params);
    for (std::uint32_t done = 0; done < size; done += chunk) {
      schedule(0, done, std::min(chunk, size - done), done + chunk >= size);
      take(step(), RequestId{0}, logprobs);
    }
    release(0);
    return logprobs;
  }

 private:
  std::uint32_t num_groups_ = 0;
  std::vector<std::vector<BlockId>> block_tables_;
  std::vector<Slot> released_;
  std::vector<AdmittedRequest> admitted_;
  std::vector<BlockTableDelta> deltas_;
  std::vector<ScheduledRequest> scheduled_;
  StepPlan plan_;
  std::unique_ptr<Worker> worker_;
};

}  // namespace quire
