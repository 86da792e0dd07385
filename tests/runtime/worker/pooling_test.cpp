// Pooled rows: what transformers makes its logits of, and the same bits however the prompt is cut.
#include <gtest/gtest.h>

#include "runtime/model/logit_record.h"
#include "runtime/model/weights.h"
#include "runtime/worker/prompt_drive.h"

namespace quire {
namespace {

std::vector<float> pool(PromptDrive& drive, const std::vector<TokenId>& prompt, std::uint32_t chunk) {
  const SamplingParams params;
  const auto size = static_cast<std::uint32_t>(prompt.size());
  drive.admit(0, prompt, size, params);
  std::vector<float> row;
  for (std::uint32_t done = 0; done < size; done += chunk) {
    drive.schedule_pooling(0, done, std::min(chunk, size - done), done + chunk >= size);
    const WorkerResult result = drive.step();
    EXPECT_EQ(result.requests.size(), done + chunk >= size ? 1U : 0U) << "nothing to say before the end";
    for (const RequestResult& request : result.requests) row.assign(request.pooled.begin(), request.pooled.end());
  }
  drive.release(0);
  return row;
}

// The record has the logits of the last token: the output weights make them of its row.
TEST(PooledRows, AreWhatTransformersMakesItsLogitsOf) {
  const tiny::LogitRecord record = tiny::read_logit_record("");
  ASSERT_EQ(record.positions.back() + 1, record.prompt.size());
  const tiny::TempFolder folder;
  ThreadPool threads(1);
  std::uint32_t num_cases = 0;
  for (const tiny::LogitCase& c : record.cases) {
    if (c.type != "F32") continue;
    SCOPED_TRACE(c.name);
    const std::string path = tiny::write_model(c, folder);
    PromptDrive drive(path, {.activations = ActivationMode::f32, .kv = KvDtype::f32, .max_model_len = c.max_model_len});
    const std::vector<float> row = pool(drive, record.prompt, 17);
    const auto file = ModelFile::open(path);
    ASSERT_TRUE(file);
    const auto weights = load_weights(*file, threads, nullptr);
    ASSERT_TRUE(weights);
    const PackedMatrix& head = weights->lm_head();
    ASSERT_EQ(row.size(), head.columns);
    std::vector<float> weight(row.size());
    const std::span<const float> wanted = std::span(c.logits).last(head.rows);
    const double most = tiny::logit_bounds().at("F32").floats * tiny::standard_deviation(c.logits) + 1e-5;
    for (std::uint32_t token = 0; token < head.rows; ++token) {
      unpack_row(head, token, weight);
      double sum = 0.0;
      for (std::size_t i = 0; i < row.size(); ++i) sum += static_cast<double>(weight[i]) * static_cast<double>(row[i]);
      ASSERT_NEAR(sum / static_cast<double>(file->config().logit_divisor), static_cast<double>(wanted[token]), most) << token;
    }
    ++num_cases;
    std::filesystem::remove_all(path);
  }
  EXPECT_GE(num_cases, 20U);
}

TEST(PooledRows, DoNotDependOnChunksAndOnWhoRunsBeside) {
  const tiny::TempFolder folder;
  tiny::write_gguf(folder.file("model.gguf"), tiny::small_llama(), "Q4_1");
  std::vector<TokenId> prompt, other;
  for (TokenId i = 0; i < 90; ++i) prompt.push_back(i * 37 % 300);
  for (TokenId i = 0; i < 30; ++i) other.push_back(i * 11 % 300);
  PromptDrive drive(folder.file("model.gguf"), {});
  const std::vector<float> alone = pool(drive, prompt, 90), other_alone = pool(drive, other, 30);
  for (const std::uint32_t chunk : {1U, 7U, 64U}) EXPECT_EQ(pool(drive, prompt, chunk), alone) << chunk;
  SamplingParams asking, plain;
  asking.prompt_logprobs = 2;
  drive.admit(0, prompt, 90, plain);
  drive.admit(1, other, 30, asking);
  drive.admit(2, other, 30, plain);
  drive.schedule(1, 0, 30, true);
  drive.schedule_pooling(2, 0, 30, true);
  drive.schedule_pooling(0, 0, 90, true);
  const WorkerResult result = drive.step();
  ASSERT_EQ(result.requests.size(), 3U);
  EXPECT_TRUE(result.requests[0].pooled.empty());
  EXPECT_TRUE(std::ranges::equal(result.requests[1].pooled, other_alone));
  EXPECT_TRUE(result.requests[1].samples.empty());
  EXPECT_TRUE(std::ranges::equal(result.requests[2].pooled, alone));
}

}  // namespace
}  // namespace quire
