// The experts of a request's tokens do not depend on how its prompt is split or on concurrent requests.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/model/rig.h"
#include "runtime/model/tiny_model.h"
#include "runtime/worker/prompt_drive.h"

namespace quire {
namespace {

// The experts by token position.
using Reported = std::map<std::uint32_t, std::vector<std::uint16_t>>;

void take_experts(const WorkerResult& result, RequestId id, Reported& reported) {
  for (const RequestResult& request : result.requests) {
    for (std::uint32_t i = 0; request.id == id && i < request.routed.num_tokens(); ++i) {
      const auto row = request.routed.experts.subspan(std::size_t{i} * request.routed.width, request.routed.width);
      reported[request.routed.first_token + i].assign(row.begin(), row.end());
    }
  }
}

class RoutedExpertsWorker : public testing::Test {
 protected:
  RoutedExpertsWorker() {
    tiny::write_gguf(path, tiny::small_mixture("qwen2_moe"), "Q4_1");
    for (std::uint32_t i = 0; i < 90; ++i) prompt.push_back(static_cast<TokenId>((5 + i * 37) % 300));
    params.temperature = 0.0F;
    params.routed_experts = true;
  }
  Reported of_prompt(std::uint32_t chunk, std::uint32_t num_threads = 1) {
    PromptDrive drive(path, {.num_threads = num_threads});
    drive.admit(0, prompt, 90, params);
    Reported reported;
    for (std::uint32_t done = 0; done < 90; done += chunk) {
      drive.schedule(0, done, std::min(chunk, 90 - done), done + chunk >= 90);
      take_experts(drive.step(), RequestId{0}, reported);
    }
    return reported;
  }
  const tiny::TempFolder folder;
  const std::string path = folder.file("model.gguf");
  std::vector<TokenId> prompt;
  SamplingParams params;
};

TEST_F(RoutedExpertsWorker, DoNotDependOnChunksOrThreads) {
  const Reported whole = of_prompt(90);
  ASSERT_EQ(whole.size(), 90U);
  EXPECT_NE(whole.at(0), whole.at(1));
  for (const std::uint32_t num_threads : {1U, 2U})
    for (const std::uint32_t chunk : {1U, 7U, 16U, 89U}) EXPECT_EQ(of_prompt(chunk, num_threads), whole) << chunk;
}

TEST_F(RoutedExpertsWorker, AreReportedToRequestsThatAskTogetherWithLogprobs) {
  const Reported whole = of_prompt(90);
  PromptDrive drive(path, {});
  SamplingParams plain, both = params;
  plain.temperature = 0.0F;
  both.prompt_logprobs = 3;
  const std::vector<TokenId> other(prompt.begin() + 20, prompt.begin() + 60);
  std::vector<PositionLogprobs> logprobs(90), alone(90);
  Reported reported, of_other;
  drive.admit(1, other, 40, plain);
  drive.admit(0, prompt, 90, both);
  drive.admit(2, other, 40, params);
  for (const std::uint32_t part : {0U, 1U}) {
    drive.schedule(1, part == 0 ? 0 : 40, part == 0 ? 40 : 1, true);
    drive.schedule(0, part * 45, 45, part == 1);
    drive.schedule(2, part * 20, 20, part == 1);
    const WorkerResult result = drive.step();
    EXPECT_EQ(result.requests[0].routed.num_tokens(), 0U);
    PromptDrive::take(result, RequestId{0}, logprobs);
    take_experts(result, RequestId{0}, reported);
    take_experts(result, RequestId{2}, of_other);
  }
  EXPECT_EQ(reported, whole);
  ASSERT_EQ(of_other.size(), 40U);
  both.routed_experts = false;
  alone = PromptDrive(path, {}).score(prompt, both, 90);
  for (std::size_t i = 1; i < 90; ++i) {
    ASSERT_EQ(logprobs[i].entries.size(), 4U);
    EXPECT_EQ(logprobs[i].entries[0].logprob, alone[i].entries[0].logprob);
  }
}

TEST(RoutedExpertsUnsupported, AWorkerOfADenseModelDoesNotSupportThem) {
  const tiny::TempFolder folder;
  const std::string path = folder.file("model.gguf");
  tiny::write_gguf(path, tiny::small_llama(), "F32");
  auto pool = std::make_unique<ThreadPool>(1);
  auto model = load_model(path, {.max_num_batched_tokens = 16, .max_num_seqs = 1, .pool = pool.get()});
  ASSERT_TRUE(model);
  auto cache = KvCache::create(test::kv_layout_of((*model)->info(), {.num_blocks = 2}));
  ASSERT_TRUE(cache);
  EXPECT_FALSE(Worker(WorkerLimits{1, 16, 16}, std::move(pool), std::move(*model), std::move(*cache)).capabilities().routed_experts);
}

}  // namespace
}  // namespace quire
