// A step allocates nothing after a warm-up.
#include <gtest/gtest.h>

#include <array>

#include "runtime/model/rig.h"
#include "runtime/model/tiny_model.h"
#include "runtime/worker/draft_model.h"
#include "runtime/worker/prompt_drive.h"
#include "support/count_allocations.h"

namespace quire {
namespace {

class WorkerAllocations : public testing::Test {
 protected:
  void SetUp() override {
    if (!QUIRE_COUNTS_ALLOCATIONS) GTEST_SKIP() << "ThreadSanitizer keeps its own operator new: nothing to count";
    tiny::write_gguf(path_, tiny::small_llama(), "Q4_1");
    for (TokenId i = 0; i < 90; ++i) prompt_.push_back((5 + i * 37) % 300);
  }
  tiny::TempFolder folder_;
  std::string path_ = folder_.file("model.gguf");
  std::vector<TokenId> prompt_;
};

TEST_F(WorkerAllocations, StepsWithoutPromptLogprobsAllocateNothing) {
  PromptDrive drive(path_, {});
  SamplingParams asking, plain;
  asking.temperature = plain.temperature = 0.0F;
  asking.prompt_logprobs = 7;
  plain.max_tokens = 20;
  drive.score(prompt_, asking, 30);  // warms up with a request for prompt logprobs
  drive.admit(1, prompt_, 90, plain);
  drive.schedule(1, 0, 90, true);
  drive.step();
  for (std::uint32_t i = 0; i < 6; ++i) {
    drive.schedule(1, 90 + i, 1, true);
    const std::uint64_t before = test::num_allocations.load();
    drive.step();
    if (i > 0) EXPECT_EQ(test::num_allocations.load() - before, 0U) << i;
  }
}

// Prompts, rejected drafts, a full pool and releases use only memory that was allocated at the start.
TEST_F(WorkerAllocations, ADraftModelAllocatesNothing) {
  ThreadPool pool(2);
  auto model = load_model(path_, {.max_num_batched_tokens = 64, .max_num_seqs = 3, .max_model_len = 128, .pool = &pool}).value();
  auto cache = KvCache::create(test::kv_layout_of(model->info(), {.num_blocks = 14})).value();
  DraftModel draft({.max_num_seqs = 3, .max_model_len = 128, .max_drafts = 4, .max_rows = 64, .vocab_size = 300}, std::move(model),
                   std::move(cache), pool);
  const std::span<const TokenId> all(prompt_);
  const std::uint64_t before = test::num_allocations.load();
  std::uint32_t num_drafted = 0, num_without = 0;
  for (std::size_t size = 1; size + 10 < all.size(); ++size) {
    const std::array<DraftRequest, 3> requests{{{Slot{0}, all.first(size), 4}, {Slot{1}, all.subspan(size / 2, 10), 2}, {Slot{2}, all, 3}}};
    const DraftTimes times = draft.propose(requests);
    num_drafted += times.num_requests;
    num_without += 3 - times.num_requests;
    if (size % 16 == 0) draft.release(Slot{0});
  }
  EXPECT_EQ(test::num_allocations.load() - before, 0U);
  EXPECT_GT(num_drafted, 80U);
  EXPECT_GT(num_without, 0U);
}

}  // namespace
}  // namespace quire
