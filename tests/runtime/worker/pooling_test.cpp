// Pooled rows must equal the rows from which transformers computes its logits, with the same bits however the prompt is split.
#include <gtest/gtest.h>

#include <fstream>

#include "runtime/model/logit_record.h"
#include "runtime/model/weights/weights.h"
#include "runtime/worker/prompt_drive.h"

namespace quire {
namespace {

std::vector<float> pool(PromptDrive& drive, const std::vector<TokenId>& prompt, std::uint32_t chunk, const PoolingParams& pooling = {}) {
  SamplingParams params;
  params.pooling = pooling;
  const auto size = static_cast<std::uint32_t>(prompt.size());
  drive.admit(0, prompt, size, params);
  std::vector<float> row;
  for (std::uint32_t done = 0; done < size; done += chunk) {
    drive.schedule_pooling(0, done, std::min(chunk, size - done), done + chunk >= size);
    const WorkerResult result = drive.step();
    EXPECT_EQ(result.requests.size(), done + chunk >= size ? 1U : 0U) << "no result before the last chunk";
    for (const RequestResult& request : result.requests) row = *request.pooled;
  }
  drive.release(0);
  return row;
}

// The record has the logits of the last token; the output weights map the pooled row to them.
TEST(PooledRows, GiveTheLogitsOfTransformers) {
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
    const auto weights = load_weights(*file, threads);
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

TEST(PooledRows, DoNotDependOnChunksOrOtherRequests) {
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
  EXPECT_EQ(result.requests[0].pooled, nullptr);
  EXPECT_EQ(*result.requests[1].pooled, other_alone);
  EXPECT_TRUE(result.requests[1].samples.empty());
  EXPECT_EQ(*result.requests[2].pooled, alone);
}

constexpr PoolingKind kKinds[] = {PoolingKind::last, PoolingKind::first, PoolingKind::mean};

double cosine(std::span<const float> a, std::span<const float> b) {
  double dot = 0.0, of_a = 0.0, of_b = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    dot += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    of_a += static_cast<double>(a[i]) * static_cast<double>(a[i]);
    of_b += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return dot / std::sqrt(of_a * of_b);
}

// The record comes from tools/record/embeddings.py.
TEST(PooledRows, OfEachKindMatchTransformers) {
  const tiny::LogitRecord record = tiny::read_logit_record("");
  const auto json = read_json_file("tests/golden/embeddings/cases.json");
  ASSERT_TRUE(json);
  std::ifstream rows("tests/golden/embeddings/rows.f32", std::ios::binary);
  const tiny::TempFolder folder;
  for (const auto& name : json->at("cases").as_array()) {
    SCOPED_TRACE(std::string(name.as_string()));
    const auto found = std::ranges::find(record.cases, std::string(name.as_string()), &tiny::LogitCase::name);
    ASSERT_NE(found, record.cases.end());
    const std::string path = tiny::write_model(*found, folder);
    PromptDrive drive(path, {.activations = ActivationMode::f32, .kv = KvDtype::f32, .max_model_len = found->max_model_len});
    for (const PoolingKind kind : kKinds) {
      std::vector<float> wanted(found->config.at("hidden_size").to_number<std::size_t>());
      rows.read(reinterpret_cast<char*>(wanted.data()), static_cast<std::streamsize>(wanted.size() * sizeof(float)));
      ASSERT_TRUE(rows.good());
      const std::vector<float> pooled = pool(drive, record.prompt, 17, {.kind = kind});
      ASSERT_EQ(pooled.size(), wanted.size());
      EXPECT_GE(cosine(pooled, wanted), 0.999999) << static_cast<int>(kind);
      for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(pooled[i], wanted[i], 2e-3F) << static_cast<int>(kind) << " " << i;
    }
    std::filesystem::remove_all(path);
  }
}

// Returns the largest difference over the standard deviation of the expected values.
double worst_difference(std::span<const float> rows, const std::vector<float>& wanted) {
  double worst = 0.0;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(rows[i]) - static_cast<double>(wanted[i])));
  return worst / tiny::standard_deviation(wanted);
}

// The hidden states of a prompt must be within the bounds of the logits that are computed from them.
TEST(PooledRows, OfAllTokensMatchTheHiddenStatesOfTransformers) {
  const tiny::LogitRecord record = tiny::read_logit_record("");
  const auto json = read_json_file("tests/golden/embeddings/cases.json");
  ASSERT_TRUE(json);
  std::ifstream rows("tests/golden/embeddings/all_rows.f32", std::ios::binary);
  const tiny::TempFolder folder;
  const auto length = static_cast<std::uint32_t>(record.prompt.size());
  double worst = 0.0;
  for (const auto& name : json->at("cases").as_array()) {
    SCOPED_TRACE(std::string(name.as_string()));
    const auto found = std::ranges::find(record.cases, std::string(name.as_string()), &tiny::LogitCase::name);
    ASSERT_NE(found, record.cases.end());
    const std::string path = tiny::write_model(*found, folder);
    PromptDrive drive(path, {.activations = ActivationMode::f32, .kv = KvDtype::f32, .max_model_len = found->max_model_len});
    std::vector<float> wanted(found->config.at("hidden_size").to_number<std::size_t>() * length);
    rows.read(reinterpret_cast<char*>(wanted.data()), static_cast<std::streamsize>(wanted.size() * sizeof(float)));
    ASSERT_TRUE(rows.good());
    const std::vector<float> whole = pool(drive, record.prompt, length, {.kind = PoolingKind::all});
    ASSERT_EQ(whole.size(), wanted.size());
    EXPECT_LE(worst_difference(whole, wanted), tiny::logit_bounds().at("F32").floats);
    worst = std::max(worst, worst_difference(whole, wanted));
    EXPECT_EQ(pool(drive, record.prompt, 17, {.kind = PoolingKind::all}), whole);
    std::filesystem::remove_all(path);
  }
  std::printf("hidden states: at most %.2g standard deviations from those of transformers\n", worst);
}

TEST(PooledRows, OfAnyKindHaveTheSameBitsHoweverThePromptIsSplit) {
  const tiny::TempFolder folder;
  tiny::write_gguf(folder.file("model.gguf"), tiny::small_llama(), "Q4_1");
  std::vector<TokenId> prompt, other;
  for (TokenId i = 0; i < 110; ++i) prompt.push_back(i * 37 % 300);
  for (TokenId i = 0; i < 30; ++i) other.push_back(i * 11 % 300);
  PromptDrive drive(folder.file("model.gguf"), {});
  SamplingParams mean, first, all;
  all.pooling.kind = PoolingKind::all;
  mean.pooling.kind = PoolingKind::mean;
  first.pooling.kind = PoolingKind::first;
  const std::vector<float> whole = pool(drive, prompt, 110, mean.pooling);
  for (const std::uint32_t chunk : {1U, 7U, 64U, 109U}) EXPECT_EQ(pool(drive, prompt, chunk, mean.pooling), whole) << chunk;
  const std::vector<float> rows = pool(drive, prompt, 110, all.pooling);
  for (const std::uint32_t chunk : {1U, 7U, 64U, 109U}) EXPECT_EQ(pool(drive, prompt, chunk, all.pooling), rows) << chunk;
  const std::vector<float> head = pool(drive, prompt, 110, first.pooling);
  EXPECT_EQ(head, pool(drive, prompt, 9, first.pooling));
  EXPECT_EQ(head, pool(drive, {prompt[0]}, 1));
  EXPECT_NE(head, whole);
  ASSERT_EQ(rows.size(), 110 * head.size());
  EXPECT_TRUE(std::ranges::equal(head, std::span(rows).first(head.size())));
  EXPECT_TRUE(std::ranges::equal(pool(drive, prompt, 20), std::span(rows).last(head.size())))
      << "the last row is the row of the last token";
  drive.admit(0, prompt, 110, mean);
  drive.admit(1, other, 30, mean);
  drive.admit(2, prompt, 110, first);
  drive.admit(3, prompt, 110, all);
  drive.schedule_pooling(0, 0, 50, false);
  drive.schedule_pooling(1, 0, 30, true);
  drive.schedule_pooling(2, 0, 60, false);
  drive.schedule_pooling(3, 0, 40, false);
  EXPECT_EQ(drive.step().requests.size(), 1U);
  drive.schedule_pooling(2, 60, 50, true);
  drive.schedule_pooling(3, 40, 70, true);
  drive.schedule_pooling(0, 50, 60, true);
  const WorkerResult result = drive.step();
  ASSERT_EQ(result.requests.size(), 3U);
  EXPECT_EQ(*result.requests[0].pooled, head);
  EXPECT_EQ(*result.requests[1].pooled, rows) << "with concurrent requests";
  EXPECT_EQ(*result.requests[2].pooled, whole) << "with concurrent requests";
}

// A reranker scores a pair by the logits of "yes" and "no".
TEST(PooledRows, MayBeLogitsOfTwoTokens) {
  const tiny::LogitRecord record = tiny::read_logit_record("");
  const tiny::TempFolder folder;
  const auto found = std::ranges::find(record.cases, std::string("qwen3_hf_F32"), &tiny::LogitCase::name);
  ASSERT_NE(found, record.cases.end());
  PromptDrive drive(tiny::write_model(*found, folder), {.activations = ActivationMode::f32, .kv = KvDtype::f32});
  const std::vector<float> logits = pool(drive, record.prompt, 17, {.logits_of = {299, 3, 3}});
  ASSERT_EQ(logits.size(), 3U);
  const std::span<const float> wanted = std::span(found->logits).last(300);
  const double most = tiny::logit_bounds().at("F32").floats * tiny::standard_deviation(found->logits) + 1e-5;
  EXPECT_NEAR(logits[0], wanted[299], most);
  EXPECT_NEAR(logits[1], wanted[3], most);
  EXPECT_EQ(logits[1], logits[2]);
}

TEST(PooledRowsDeathTest, PoolingOverAllRowsRequiresAllRows) {
  const tiny::TempFolder folder;
  tiny::write_gguf(folder.file("model.gguf"), tiny::small_llama(), "Q4_1");
  const std::vector<TokenId> prompt(20, 1);
  for (const PoolingKind kind : {PoolingKind::mean, PoolingKind::all}) {
    PromptDrive drive(folder.file("model.gguf"), {});
    SamplingParams params;
    params.pooling.kind = kind;
    drive.admit(0, prompt, 20, params);
    drive.schedule_pooling(0, 16, 4, true);
    EXPECT_DEATH(drive.step(), "all rows of a pooling request are computed");
  }
}

}  // namespace
}  // namespace quire
