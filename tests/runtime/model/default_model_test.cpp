// Compares the default model, as it is served, with transformers on its dequantised weights (tools/record/default_model.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "base/half.h"
#include "format/json.h"
#include "runtime/model/rig.h"

namespace quire {
namespace {

// Sanitizers need additional shadow memory.
#if defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

struct Reference {
  std::vector<TokenId> tokens;
  std::size_t greedy_prompt_tokens = 0;
  std::vector<TokenId> greedy;
  std::size_t top = 0;
  std::vector<std::uint16_t> ids, logprobs;  // [position][top]
};

std::vector<TokenId> ids_of(const boost::json::value& array) {
  std::vector<TokenId> ids;
  for (const auto& value : array.as_array()) ids.push_back(value.to_number<TokenId>());
  return ids;
}

std::vector<std::uint16_t> read_halves(const std::string& path, std::size_t count) {
  std::vector<std::uint16_t> halves(count);
  std::ifstream in(path, std::ios::binary);
  in.read(reinterpret_cast<char*>(halves.data()), static_cast<std::streamsize>(count * 2));
  EXPECT_TRUE(in.good()) << path;
  return halves;
}

Reference read_reference() {
  const std::string folder = "tests/golden/default_model/";
  const auto json = read_json_file(folder + "reference.json");
  EXPECT_TRUE(json) << (json ? "" : json.error().to_string());
  Reference r;
  r.tokens = ids_of(json->at("tokens"));
  r.greedy_prompt_tokens = json->at("greedy_prompt_tokens").to_number<std::size_t>();
  r.greedy = ids_of(json->at("greedy"));
  r.top = json->at("top").to_number<std::size_t>();
  r.ids = read_halves(folder + "top_ids.u16", r.tokens.size() * r.top);
  r.logprobs = read_halves(folder + "top_logprobs.f16", r.tokens.size() * r.top);
  return r;
}

double log_sum_exp(std::span<const float> logits) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0.0;
  for (const float value : logits) sum += std::exp(value - largest);
  return largest + std::log(sum);
}

// Returns KL(reference || ours) of one position over the recorded tokens and the total probability of all others.
double divergence(const Reference& r, std::size_t position, std::span<const float> logits) {
  const double normaliser = log_sum_exp(logits);
  double kl = 0.0, p_rest = 1.0, q_rest = 1.0;
  for (std::size_t i = position * r.top; i < (position + 1) * r.top; ++i) {
    const double log_p = f16_to_float(r.logprobs[i]);
    const double log_q = logits[r.ids[i]] - normaliser;
    kl += std::exp(log_p) * (log_p - log_q);
    p_rest -= std::exp(log_p);
    q_rest -= std::exp(log_q);
  }
  if (p_rest > 1e-6 && q_rest > 1e-6) kl += p_rest * std::log(p_rest / q_rest);
  return kl;
}

TokenId likeliest(std::span<const float> logits) {
  return static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
}

class DefaultModel : public testing::Test {
 protected:
  void SetUp() override {
    const char* path = std::getenv("QUIRE_TEST_MODEL");
    if (path == nullptr) GTEST_SKIP() << "QUIRE_TEST_MODEL is not set: ./dev test sets it";
    path_ = path;
  }
  std::string path_;
};

struct Agreement {
  double top = 0.0;  // share of positions with equal likeliest tokens
  double kl = 0.0;   // mean
  std::uint32_t positions = 0;
};

Agreement teacher_forced(const std::string& path, const Reference& r, ActivationMode mode, KvDtype kv) {
  constexpr std::uint32_t kChunk = 256;
  constexpr std::uint32_t kSlowPositions = 100;
  const auto all = static_cast<std::uint32_t>(r.tokens.size());
  tiny::Rig rig(path, {.activations = mode, .kv = kv, .max_tokens = all, .num_blocks = all / 16 + 2});
  const std::uint32_t total = std::string_view(rig.model().kernel_name()) == "reference" ? kSlowPositions : all;
  rig.give_blocks(Slot{0}, tiny::blocks_for(total, 16, 1));
  Agreement sum;
  for (std::uint32_t done = 0; done < total; done += kChunk) {
    const std::uint32_t count = std::min(kChunk, total - done);
    const auto logits = rig.run(std::span(r.tokens).subspan(done, count), {{Slot{0}, done, count}});
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto row = std::span(logits).subspan(i * rig.vocab(), rig.vocab());
      sum.top += likeliest(row) == r.ids[(done + i) * r.top] ? 1.0 : 0.0;
      sum.kl += divergence(r, done + i, row);
    }
  }
  return {sum.top / total, sum.kl / total, total};
}

TEST_F(DefaultModel, AgreesWithTransformersOnRealText) {
  const Reference r = read_reference();
  ASSERT_EQ(r.tokens.size(), 2000U);
  const Agreement served = teacher_forced(path_, r, ActivationMode::int16, KvDtype::bf16);
  std::printf("served (int16 activations, bf16 KV): agreement %.2f %%, mean KL %.2g\n", 100.0 * served.top, served.kl);
  // The bounds are about twice the disagreement and divergence measured over all 2,000 positions. The reference kernels run only the first
  // 100.
  EXPECT_GE(served.top, served.positions == r.tokens.size() ? 0.993 : 0.98);
  EXPECT_LE(served.kl, served.positions == r.tokens.size() ? 1e-4 : 5e-4);
  const Agreement bytes = teacher_forced(path_, r, ActivationMode::int8, KvDtype::bf16);
  std::printf("int8 activations, bf16 KV: agreement %.2f %%, mean KL %.2g\n", 100.0 * bytes.top, bytes.kl);
  EXPECT_GE(bytes.top, bytes.positions == r.tokens.size() ? 0.904 : 0.85);
  EXPECT_LE(bytes.kl, bytes.positions == r.tokens.size() ? 5.2e-3 : 2e-2);
  const Agreement codes = teacher_forced(path_, r, ActivationMode::int16, KvDtype::int8);
  std::printf("int16 activations, int8 KV: agreement %.2f %%, mean KL %.2g\n", 100.0 * codes.top, codes.kl);
  EXPECT_GE(codes.top, codes.positions == r.tokens.size() ? 0.949 : 0.9);
  EXPECT_LE(codes.kl, codes.positions == r.tokens.size() ? 1.5e-3 : 1e-2);
  if (std::getenv("QUIRE_TEST_VERBOSE") == nullptr) return;
  const auto info = inspect(path_);
  ASSERT_TRUE(info);
  for (const auto& [name, mode, kv] : {std::tuple("bf16 activations, bf16 KV", ActivationMode::bf16, KvDtype::bf16),
                                       std::tuple("float activations, f32 KV", ActivationMode::f32, KvDtype::f32),
                                       std::tuple("int16 activations, f32 KV", ActivationMode::int16, KvDtype::f32),
                                       std::tuple("float activations, bf16 KV", ActivationMode::f32, KvDtype::bf16)}) {
    // These activations require bf16 weights, for example the same model as a folder.
    if (mode == ActivationMode::bf16 && std::ranges::find(info->held, "bf16", &WeightFormatSummary::form) == info->held.end()) continue;
    const Agreement other = teacher_forced(path_, r, mode, kv);
    std::printf("%s: agreement %.2f %%, mean KL %.2g\n", name, 100.0 * other.top, other.kl);
  }
}

TEST_F(DefaultModel, ContinuesLikeTransformers) {
  const Reference r = read_reference();
  tiny::Rig rig(path_, {.activations = ActivationMode::int16, .kv = KvDtype::bf16});
  rig.give_blocks(Slot{7}, tiny::blocks_for(128, 16, 1));
  auto position = static_cast<std::uint32_t>(r.greedy_prompt_tokens);
  const auto prefill = rig.run(std::span(r.tokens).first(position), {{Slot{7}, 0, position}});
  std::vector<TokenId> continued{likeliest(std::span(prefill).last(rig.vocab()))};
  for (; continued.size() < r.greedy.size(); ++position) {
    const std::vector<TokenId> token{continued.back()};
    continued.push_back(likeliest(rig.run(token, {{Slot{7}, position, 1}})));
  }
  EXPECT_EQ(continued, r.greedy);
}

// Packed weights need about as many bytes as the file, and the source pages leave memory.
TEST_F(DefaultModel, NeedsLittleMoreMemoryThanItsWeights) {
  const auto resident_bytes = [] {
    std::ifstream statm("/proc/self/statm");
    std::uint64_t size = 0, resident = 0;
    statm >> size >> resident;
    return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  };
  const std::uint64_t before = resident_bytes();
  ThreadPool pool(2);
  const auto model = load_model(path_, {.pool = &pool});
  ASSERT_TRUE(model) << model.error().to_string();
  const std::uint64_t grown = resident_bytes() - std::min(before, resident_bytes());
  std::printf("weights %.1f MB, resident %.1f MB more than before, workspaces up to %.1f MB\n",
              static_cast<double>((*model)->weight_bytes()) / 1e6, static_cast<double>(grown) / 1e6,
              static_cast<double>((*model)->workspace_bytes()) / 1e6);
  EXPECT_TRUE(kSanitized || grown <= (*model)->weight_bytes() + 60'000'000) << grown;
}

}  // namespace
}  // namespace quire
