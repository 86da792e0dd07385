#include "runtime/worker/worker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "runtime/model/rig.h"
#include "runtime/model/tiny_model.h"

namespace quire {
namespace {

constexpr WorkerLimits kLimits{.max_num_seqs = 4, .max_model_len = 128, .max_num_batched_tokens = 64};

// Two requests with the same prompt, request i in slot i and block 1 + i, in the served mode: 16-bit activations, bf16 KV.
class TwoRequests {
 public:
  explicit TwoRequests(const std::string& path, std::uint32_t num_threads = 1) {
    auto pool = std::make_unique<ThreadPool>(num_threads);
    auto model = load_model(path, {.max_num_batched_tokens = 64, .max_num_seqs = 4, .max_model_len = 128, .pool = pool.get()});
    EXPECT_TRUE(model) << (model ? "" : model.error().to_string());
    auto cache = KvCache::create(test::kv_layout_of((*model)->info(), {.block_size = 16, .num_blocks = 5}));
    EXPECT_TRUE(cache);
    block_of_request_0_ = cache->page(0, BlockId{1});
    for (std::uint32_t tensor = 0; tensor < 2; ++tensor) {
      pages_of_free_block_.push_back(cache->page(tensor, BlockId{3}));
      pages_of_copy_.push_back(cache->page(tensor, BlockId{4}));
    }
    params_.temperature = 0.0F;
    worker_ = std::make_unique<Worker>(kLimits, std::move(pool), std::move(*model), std::move(*cache));
  }

  // Computes the prompt and samples the token after it.
  WorkerResult prefill() {
    for (std::uint32_t i = 0; i < 2; ++i) {
      admitted_.push_back({RequestId{i}, Slot{i}, prompt_, 5, &params_});
      BlockTableDelta& delta = deltas_.emplace_back();
      delta.slot = Slot{i};
      delta.blocks = std::span(&blocks_[i], 1);
    }
    plan_.admitted = admitted_;
    plan_.table_deltas = deltas_;
    return step(0, 5);
  }
  // Sets the masks for the next steps; they arrive before the forward pass, or `late` after it.
  void mask(std::vector<TokenMask> masks, bool late = false) {
    masks_ = std::move(masks);
    plan_.has_structured_output = true;
    late_ = late;
  }
  void forget_masks() {
    mask({});
    provides_ = false;
  }
  Worker& worker() { return *worker_; }
  // Computes one more token.
  WorkerResult decode(std::uint32_t num_computed) {
    plan_.admitted = {};
    plan_.table_deltas = {};
    return step(num_computed, 1);
  }
  // Simulates flipped bits in memory.
  void corrupt_key_of_request_0() {
    const std::uint16_t nan = 0x7FC0;
    std::memcpy(&block_of_request_0_[4], &nan, sizeof nan);
  }
  // The next plan copies block 3, which has old contents, to block 4 and then zeroes it.
  void ask_for_zeros() {
    for (const auto page : pages_of_free_block_) std::ranges::fill(page, std::byte{0xAB});
    plan_.copies = copies_;
    plan_.blocks_to_zero = zeroed_;
  }
  [[nodiscard]] bool free_block_is_zero() const { return all_are(pages_of_free_block_, std::byte{0}); }
  [[nodiscard]] bool copy_is_whole() const { return all_are(pages_of_copy_, std::byte{0xAB}); }

 private:
  static bool all_are(std::span<const std::span<std::byte>> pages, std::byte value) {
    return std::ranges::all_of(pages,
                               [value](std::span<const std::byte> page) { return std::ranges::count(page, value) == std::ssize(page); });
  }
  WorkerResult step(std::uint32_t computed, std::uint32_t count) {
    scheduled_.clear();
    for (std::uint32_t i = 0; i < 2; ++i) {
      ScheduledRequest& request = scheduled_.emplace_back();
      request.id = RequestId{i};
      request.slot = Slot{i};
      request.num_computed_tokens = computed;
      request.num_tokens = count;
      request.samples = true;
    }
    plan_.scheduled = scheduled_;
    plan_.num_scheduled_tokens = 2 * count;
    ++plan_.step.value;
    if (!plan_.has_structured_output) return worker_->execute(plan_);
    worker_->start(plan_);
    if (late_ || !provides_) worker_->assist();  // returns after the forward pass
    if (provides_) worker_->provide(masks_);
    return worker_->finish();
  }

  std::vector<TokenId> prompt_{5, 6, 7, 8, 9};
  std::vector<BlockId> blocks_{BlockId{1}, BlockId{2}};
  SamplingParams params_;
  std::vector<AdmittedRequest> admitted_;
  std::vector<BlockTableDelta> deltas_;
  std::vector<ScheduledRequest> scheduled_;
  StepPlan plan_;
  std::vector<TokenMask> masks_;
  bool late_ = false, provides_ = true;
  std::unique_ptr<Worker> worker_;
  std::span<std::byte> block_of_request_0_;
  std::vector<std::span<std::byte>> pages_of_free_block_, pages_of_copy_;
  std::vector<BlockId> zeroed_{BlockId{3}};
  std::vector<BlockCopy> copies_{{.id = RequestId{1}, .source = BlockId{3}, .destination = BlockId{4}}};
};

TEST(Worker, ACorruptedKvBlockFailsOnlyTheRequestThatAttendsToIt) {
  const tiny::TempFolder folder;
  tiny::write_gguf(folder.file("model.gguf"), tiny::small_llama(), "Q4_1");
  TwoRequests sound(folder.file("model.gguf")), corrupted(folder.file("model.gguf"));
  for (TwoRequests* pair : {&sound, &corrupted}) {
    const WorkerResult first = pair->prefill();
    ASSERT_EQ(first.requests[0].samples[0].status, SampleOutcome::Status::ok);
    ASSERT_EQ(first.requests[0].samples[0].token, first.requests[1].samples[0].token);
  }
  corrupted.corrupt_key_of_request_0();
  const WorkerResult expected = sound.decode(5), result = corrupted.decode(5);
  EXPECT_EQ(expected.requests[0].samples[0].status, SampleOutcome::Status::ok);
  EXPECT_EQ(result.requests[0].samples[0].status, SampleOutcome::Status::not_finite);
  EXPECT_EQ(result.requests[1].samples[0].status, SampleOutcome::Status::ok);
  EXPECT_EQ(result.requests[1].samples[0].token, expected.requests[1].samples[0].token);
}

TEST(Worker, ZeroesOnlyTheBlocksOfThePlan) {
  const tiny::TempFolder folder;
  tiny::write_gguf(folder.file("model.gguf"), tiny::small_llama(), "Q4_1");
  TwoRequests plain(folder.file("model.gguf")), zeroing(folder.file("model.gguf"));
  plain.prefill();
  zeroing.prefill();
  zeroing.ask_for_zeros();
  EXPECT_FALSE(zeroing.free_block_is_zero());
  EXPECT_EQ(zeroing.decode(5).requests[0].samples[0].token, plain.decode(5).requests[0].samples[0].token);
  EXPECT_TRUE(zeroing.free_block_is_zero());
  EXPECT_TRUE(zeroing.copy_is_whole()) << "copies run before zeroing";
}

class WorkerMasks : public testing::Test {
 protected:
  WorkerMasks() { tiny::write_gguf(path, tiny::small_llama(), "Q4_1"); }
  static std::vector<std::uint32_t> all_but(TokenId token) {
    std::vector<std::uint32_t> words((tiny::small_llama().vocab_size + 31) / 32, 0xFFFFFFFFU);
    words[static_cast<std::size_t>(token) / 32] &= ~(1U << static_cast<std::uint32_t>(token) % 32);
    return words;
  }
  const tiny::TempFolder folder;
  const std::string path = folder.file("model.gguf");
};

TEST_F(WorkerMasks, AForbiddenTokenIsNotSampledAndTheOtherRequestIsUnchanged) {
  TwoRequests plain(path);
  const TokenId first = plain.prefill().requests[0].samples[0].token, second = plain.decode(5).requests[0].samples[0].token;
  for (const std::uint32_t num_threads : {1U, 2U}) {
    for (const bool late : {false, true}) {
      TwoRequests masked(path, num_threads);
      const std::vector<std::uint32_t> words = all_but(first), all = all_but(second == 0 ? 1 : 0);
      masked.mask({{RequestId{1}, words}}, late);
      const WorkerResult result = masked.prefill();
      EXPECT_EQ(result.requests[0].samples[0].token, first);
      EXPECT_NE(result.requests[1].samples[0].token, first);
      EXPECT_EQ(result.requests[1].samples[0].status, SampleOutcome::Status::ok);
      masked.mask({{RequestId{0}, all}}, late);
      EXPECT_EQ(masked.decode(5).requests[0].samples[0].token, second) << "the sampled token is fed back";
      masked.mask({}, late);
      EXPECT_EQ(masked.decode(6).requests[0].samples[0].status, SampleOutcome::Status::ok) << "no request has a mask";
    }
  }
}

TEST_F(WorkerMasks, AMaskThatAllowsNothingFailsOnlyItsRequest) {
  TwoRequests plain(path), masked(path);
  const std::vector<std::uint32_t> none((tiny::small_llama().vocab_size + 31) / 32);
  masked.mask({{RequestId{0}, none}});
  const WorkerResult result = masked.prefill();
  EXPECT_EQ(result.requests[0].samples[0].status, SampleOutcome::Status::all_masked);
  EXPECT_EQ(result.requests[1].samples[0].token, plain.prefill().requests[1].samples[0].token);
}

TEST_F(WorkerMasks, TheForwardPassDoesNotWaitForMasksAndMissingMasksAbortTheProgram) {
  for (const std::uint32_t num_threads : {1U, 2U}) {
    EXPECT_DEATH(
        {
          TwoRequests pair(path, num_threads);
          pair.forget_masks();
          pair.prefill();
        },
        "masks were provided for a plan with structured output");
  }
}

TEST_F(WorkerMasks, AcceptsOnlyMasksThatThePlanNeeds) {
  TwoRequests pair(path);
  EXPECT_TRUE(pair.worker().capabilities().token_masks);
  const std::vector<std::uint32_t> words = all_but(3);
  EXPECT_DEATH(pair.worker().provide({}), "only if the plan needs them");
  pair.mask({{RequestId{1}, words}, {RequestId{0}, words}});
  EXPECT_DEATH(pair.prefill(), "in the plan's order");
  pair.mask({{RequestId{7}, words}});
  EXPECT_DEATH(pair.prefill(), "belongs to a request that samples");
}

// A row is sampled after the last known token, and one after each draft.
TEST(Batch, DraftsAreRowsAfterTheKnownTokens) {
  const std::vector<TokenId> tokens{1, 2, 3}, drafts{7, 8};
  SamplingParams params;
  Batch batch(4, 64, 64, 2);
  batch.admit({RequestId{1}, Slot{0}, tokens, 3, &params});
  batch.admit({RequestId{2}, Slot{1}, tokens, 3, &params});
  std::vector<ScheduledRequest> scheduled(2);
  for (std::uint32_t i = 0; i < 2; ++i) {
    scheduled[i].slot = Slot{i};
    scheduled[i].num_tokens = 3;
    scheduled[i].samples = true;
  }
  scheduled[0].num_computed_tokens = 2;
  scheduled[0].drafts = drafts;
  StepPlan plan;
  plan.num_scheduled_tokens = 6;
  plan.scheduled = scheduled;
  const BatchInput input = batch.build(plan);
  EXPECT_TRUE(std::ranges::equal(input.tokens, std::vector<TokenId>{3, 7, 8, 1, 2, 3}));
  EXPECT_TRUE(std::ranges::equal(input.output_rows, std::vector<std::uint32_t>{0, 1, 2, 5}));
  EXPECT_TRUE(std::ranges::equal(batch.sampled_outputs(), std::vector<std::uint32_t>{0, 1, 2, 3}));
  EXPECT_TRUE(std::ranges::equal(batch.history(Slot{0}), tokens)) << "a draft does not count as a token of the request";
}

// A plan may need features that this worker does not support: it refuses them and never ignores them.
TEST(BatchDeath, RefusesUnsupportedPlans) {
  const std::vector<TokenId> tokens{1, 2, 3};
  const std::vector<std::uint32_t> inputs{0};
  SamplingParams params;
  Batch batch(4, 64, 64);
  batch.admit({RequestId{1}, Slot{0}, tokens, 3, &params});
  const auto build = [&](auto change) {
    std::vector<ScheduledRequest> scheduled(1);
    scheduled[0].num_tokens = 3;
    scheduled[0].samples = true;
    StepPlan plan;
    plan.num_scheduled_tokens = 3;
    change(plan, scheduled[0]);
    plan.scheduled = scheduled;
    return batch.build(plan).tokens.size();
  };
  EXPECT_EQ(build([](StepPlan&, ScheduledRequest&) {}), 3U);
  EXPECT_DEATH(build([&](StepPlan&, ScheduledRequest& request) { request.drafts = tokens; }), "at most num_spec_tokens draft tokens");
  EXPECT_DEATH(build([&](StepPlan&, ScheduledRequest& request) { request.encoder_inputs = inputs; }),
               "a request with encoder inputs has an encoder");
  EXPECT_DEATH(build([&](StepPlan&, ScheduledRequest& request) { request.new_tokens = tokens; }), "another pipeline stage");
}

}  // namespace
}  // namespace quire
