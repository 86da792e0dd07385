// Prompt log probabilities must match transformers, with the same bits however the prompt is split and whatever runs concurrently.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "runtime/model/logit_record.h"
#include "runtime/worker/prompt_drive.h"

namespace quire {
namespace {

SamplingParams asking_for(std::uint32_t count) {
  SamplingParams params;
  params.temperature = 0.0F;
  params.prompt_logprobs = count;
  return params;
}

double log_softmax(std::span<const float> row, std::size_t token) {
  double sum = 0.0;
  for (const float logit : row) sum += std::exp(static_cast<double>(logit));
  return static_cast<double>(row[token]) - std::log(sum);
}

// `most` is the largest allowed difference of two logits.
void expect_like(const PositionLogprobs& got, std::span<const float> row, TokenId token, double most) {
  ASSERT_EQ(got.entries.size(), 21U);
  EXPECT_EQ(got.entries[0].token, token);
  for (const TokenLogprob& entry : got.entries) {
    const float logit = row[static_cast<std::size_t>(entry.token)];
    EXPECT_NEAR(static_cast<double>(entry.logprob), log_softmax(row, static_cast<std::size_t>(entry.token)), 2 * most + 1e-6);
    const auto above = [&](double margin) {
      return std::ranges::count_if(row, [&](float other) { return static_cast<double>(other) > static_cast<double>(logit) + margin; });
    };
    EXPECT_GT(static_cast<std::ptrdiff_t>(entry.rank), above(2 * most));
    EXPECT_LE(static_cast<std::ptrdiff_t>(entry.rank), 1 + above(-2 * most));
  }
  for (std::uint32_t i = 1; i < 21; ++i) {
    EXPECT_EQ(got.entries[i].rank, i);
    if (i > 1) EXPECT_LE(got.entries[i].logprob, got.entries[i - 1].logprob);
  }
}

void expect_logprobs_of(const tiny::LogitRecord& record) {
  const tiny::TempFolder folder;
  const SamplingParams params = asking_for(20);
  for (const tiny::LogitCase& c : record.cases) {
    SCOPED_TRACE(c.name);
    const std::string path = tiny::write_model(c, folder);
    const double deviation = tiny::standard_deviation(c.logits);
    const tiny::LogitBounds& bounds = tiny::logit_bounds().at(c.type);
    const std::size_t vocab = c.logits.size() / record.positions.size();
    for (const bool served : {false, true}) {
      const DriveOptions options{.activations = served ? ActivationMode::int16 : ActivationMode::f32,
                                 .kv = served ? KvDtype::bf16 : KvDtype::f32,
                                 .max_model_len = c.max_model_len};
      const auto logprobs = PromptDrive(path, options).score(record.prompt, params, 17);
      EXPECT_TRUE(logprobs[0].entries.empty());
      for (std::size_t i = 0; i < record.positions.size(); ++i) {
        const std::uint32_t next = record.positions[i] + 1;
        if (next < record.prompt.size())
          expect_like(logprobs[next], std::span(c.logits).subspan(i * vocab, vocab), record.prompt[next],
                      deviation * (served ? bounds.served : bounds.floats));
      }
    }
    std::filesystem::remove_all(path);
  }
}

TEST(PromptLogprobsWorker, MatchTransformers) {
  expect_logprobs_of(tiny::read_logit_record(""));
}

TEST(PromptLogprobsWorker, MatchTransformersInWindows) {
  expect_logprobs_of(tiny::read_logit_record("window_"));
}

std::vector<std::uint32_t> bits_of(const std::vector<PositionLogprobs>& logprobs) {
  std::vector<std::uint32_t> bits;
  for (const PositionLogprobs& position : logprobs) {
    bits.push_back(static_cast<std::uint32_t>(position.entries.size()));
    for (const TokenLogprob& entry : position.entries)
      bits.insert(bits.end(), {static_cast<std::uint32_t>(entry.token), std::bit_cast<std::uint32_t>(entry.logprob), entry.rank});
  }
  return bits;
}

std::vector<TokenId> some_tokens(std::uint32_t count, TokenId first) {
  std::vector<TokenId> tokens;
  for (std::uint32_t i = 0; i < count; ++i) tokens.push_back((first + static_cast<TokenId>(i) * 37) % 300);
  return tokens;
}

class PromptBits : public testing::Test {
 protected:
  PromptBits() { tiny::write_gguf(path, tiny::small_llama(), "Q4_1"); }
  const tiny::TempFolder folder;
  const std::string path = folder.file("model.gguf");
  const std::vector<TokenId> prompt = some_tokens(90, 5);
  const SamplingParams params = asking_for(7);
};

TEST_F(PromptBits, DoNotDependOnChunksOrThreads) {
  const auto whole = bits_of(PromptDrive(path, {}).score(prompt, params, 90));
  for (const std::uint32_t num_threads : {1U, 2U})
    for (const std::uint32_t chunk : {1U, 7U, 16U, 89U})
      EXPECT_EQ(bits_of(PromptDrive(path, {.num_threads = num_threads}).score(prompt, params, chunk)), whole) << chunk;
}

TEST_F(PromptBits, DoNotDependOnOtherRequests) {
  PromptDrive drive(path, {});
  const auto alone = bits_of(drive.score(prompt, params, 90));
  const std::vector<TokenId> others[] = {some_tokens(40, 9), some_tokens(20, 11)};
  const SamplingParams more = asking_for(20), none = [] {
    SamplingParams plain;
    plain.temperature = 0.0F;
    return plain;
  }();
  const auto other_alone = bits_of(drive.score(others[0], more, 40));
  std::vector<PositionLogprobs> logprobs(90), other(40);
  drive.admit(1, others[0], 40, more);
  drive.admit(2, others[1], 20, none);
  drive.admit(0, prompt, 90, params);
  for (const std::uint32_t part : {0U, 1U}) {
    drive.schedule(1, part * 20, 20, part == 1);
    drive.schedule(2, part == 0 ? 0 : 20, part == 0 ? 20 : 1, true);
    drive.schedule(0, part * 45, 45, part == 1);
    const WorkerResult result = drive.step();
    ASSERT_EQ(result.requests.size(), 3U);
    EXPECT_TRUE(result.requests[1].prompt_logprobs.empty());
    EXPECT_EQ(result.requests[1].samples.size(), 1U);
    EXPECT_EQ(result.requests[2].samples.size(), part);
    PromptDrive::take(result, RequestId{0}, logprobs);
    PromptDrive::take(result, RequestId{1}, other);
  }
  EXPECT_EQ(bits_of(logprobs), alone);
  EXPECT_EQ(bits_of(other), other_alone);
}

TEST_F(PromptBits, AreRepeatedAfterAPreemptionButNotOnceThePromptIsDone) {
  PromptDrive drive(path, {});
  std::vector<PositionLogprobs> first(90), second(90);
  drive.admit(0, prompt, 90, params);
  drive.schedule(0, 0, 60, false);
  PromptDrive::take(drive.step(), RequestId{0}, first);
  drive.release(0);
  second = drive.score(prompt, params, 50);
  first.resize(61);
  second.resize(61);
  EXPECT_EQ(bits_of(first), bits_of(second));
  std::vector<TokenId> known = prompt;
  known.push_back(3);
  drive.admit(0, known, 90, params);
  drive.schedule(0, 0, 91, true);
  const WorkerResult result = drive.step();
  EXPECT_EQ(result.requests[0].samples.size(), 1U);
  EXPECT_TRUE(result.requests[0].prompt_logprobs.empty());
}

// The scorer holds few rows of logits at a time; their number must not matter.
TEST_F(PromptBits, DoNotDependOnTheSizeOfSlices) {
  tiny::Rig rig(path, {.activations = ActivationMode::int16, .kv = KvDtype::bf16, .num_slots = 4});
  Batch batch(4, 128, 256);
  Sampler sampler(300, 4, {}, nullptr);
  const std::vector<TokenId> other = some_tokens(30, 9);
  const SamplingParams three = asking_for(3);
  batch.admit({RequestId{0}, Slot{0}, prompt, 90, &params});
  batch.admit({RequestId{1}, Slot{1}, other, 30, &three});
  for (std::uint32_t slot = 0; slot < 2; ++slot) rig.give_blocks(Slot{slot}, tiny::blocks_for(96, 16, 1 + slot, 2));
  std::vector<ScheduledRequest> scheduled(2);
  for (std::uint32_t slot = 0; slot < 2; ++slot) {
    scheduled[slot].id = RequestId{slot};
    scheduled[slot].slot = Slot{slot};
    scheduled[slot].num_tokens = slot == 0 ? 90 : 30;
    scheduled[slot].samples = true;
  }
  StepPlan plan;
  plan.scheduled = scheduled;
  plan.num_scheduled_tokens = 120;
  rig.model().forward(batch.build(plan), rig.cache(), rig.tables(), {});
  ASSERT_EQ(batch.prompt_runs().size(), 2U);
  EXPECT_TRUE(std::ranges::equal(batch.sampled_outputs(), std::vector<std::uint32_t>{89, 119}));
  std::vector<PositionLogprobs> whole, parts;
  PromptScorer(300).score(batch, rig.model(), sampler, whole);
  ASSERT_EQ(whole.size(), 89U + 29U);
  for (const std::uint32_t rows : {1U, 3U, 118U}) {
    PromptScorer scorer(300, rows * 300 * sizeof(float));
    EXPECT_EQ(scorer.slice_rows(), rows);
    scorer.score(batch, rig.model(), sampler, parts);
    EXPECT_EQ(bits_of(parts), bits_of(whole)) << rows;
  }
}

TEST(PromptScorerMemory, IsBoundedForAnyVocabulary) {
  for (const std::uint32_t vocab : {300U, 49152U, 151936U, 262208U}) {
    const std::uint64_t rows = PromptScorer(vocab).slice_rows();
    EXPECT_LE(rows * vocab * sizeof(float), PromptScorer::kSliceBytes);
    EXPECT_GE(rows, 4U) << "the weights are read once per slice";
  }
  EXPECT_EQ(PromptScorer(300, 1).slice_rows(), 1U);
}

}  // namespace
}  // namespace quire
