#pragma once
// A sampler with rows of logits to draw from.
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "runtime/sample/sampler.h"

namespace quire::test {

inline constexpr std::uint32_t kVocab = 500;

inline std::vector<float> random_row(std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, 2.0F);
  std::vector<float> row(kVocab);
  std::ranges::generate(row, [&] { return normal(random); });
  return row;
}

class SamplerBench {
 public:
  explicit SamplerBench(std::vector<TokenId> eos = {}, ThreadPool* pool = nullptr) : sampler_(kVocab, 16, std::move(eos), pool) {}

  void admit(std::uint32_t slot, const SamplingParams& params, const std::vector<TokenId>& tokens, std::uint32_t num_prompt) {
    sampler_.admit({RequestId{slot + 100}, Slot{slot}, tokens, num_prompt, &params});
  }
  SampleOutcome sample(std::uint32_t slot, const std::vector<float>& logits) {
    const SampleRow row{Slot{slot}, logits};
    return sample_all({row}).at(0);
  }
  SampleOutcome sample(std::uint32_t slot, const std::vector<float>& logits, const std::vector<std::uint32_t>& allowed) {
    const SampleRow row{Slot{slot}, logits, allowed};
    return sample_all({row}).at(0);
  }
  std::vector<SampleOutcome> sample_all(const std::vector<SampleRow>& rows) {
    std::vector<SampleOutcome> outcomes;
    sampler_.sample(rows, outcomes, counts_);
    return outcomes;
  }
  [[nodiscard]] const std::vector<std::uint32_t>& counts() const { return counts_; }
  Sampler& sampler() { return sampler_; }

 private:
  Sampler sampler_;
  std::vector<std::uint32_t> counts_;
};

inline SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0.0F;
  return params;
}

inline SamplingParams seeded_params(std::uint64_t seed) {
  SamplingParams params;
  params.seed = seed;
  return params;
}

inline std::vector<float> flat_with(std::initializer_list<std::pair<TokenId, float>> peaks) {
  std::vector<float> row(kVocab, 0.0F);
  for (const auto& [token, logit] : peaks) row[static_cast<std::size_t>(token)] = logit;
  return row;
}

// Makes a mask with random bits after the vocabulary.
inline std::vector<std::uint32_t> mask_of(std::initializer_list<TokenId> allowed) {
  std::vector<std::uint32_t> mask((kVocab + 31) / 32);
  for (const TokenId token : allowed) mask[static_cast<std::size_t>(token) / 32] |= 1U << static_cast<std::uint32_t>(token) % 32;
  mask.back() |= 0xFFFFFFFFU << kVocab % 32;
  return mask;
}

}  // namespace quire::test
