#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "quire/base/sampling.h"

namespace quire {
namespace {

struct Case {
  const char* field;
  std::function<void(SamplingParams&)> invalidate;
};

TEST(SamplingParams, ReportsEachFieldOutOfRange) {
  static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const Case cases[] = {
      {"temperature", [](SamplingParams& p) { p.temperature = 2.01F; }},
      {"temperature", [](SamplingParams& p) { p.temperature = -0.1F; }},
      {"temperature", [](SamplingParams& p) { p.temperature = kNan; }},
      {"top_p", [](SamplingParams& p) { p.top_p = 0.0F; }},
      {"top_p", [](SamplingParams& p) { p.top_p = 1.1F; }},
      {"top_k", [](SamplingParams& p) { p.top_k = -2; }},
      {"min_p", [](SamplingParams& p) { p.min_p = 1.5F; }},
      {"repetition_penalty", [](SamplingParams& p) { p.repetition_penalty = 0.0F; }},
      {"repetition_penalty", [](SamplingParams& p) { p.repetition_penalty = std::numeric_limits<float>::infinity(); }},
      {"presence_penalty", [](SamplingParams& p) { p.presence_penalty = 2.5F; }},
      {"frequency_penalty", [](SamplingParams& p) { p.frequency_penalty = -2.5F; }},
      {"logprobs", [](SamplingParams& p) { p.logprobs = 21; }},
      {"prompt_logprobs", [](SamplingParams& p) { p.prompt_logprobs = 21; }},
      {"max_tokens", [](SamplingParams& p) { p.max_tokens = 0; }},
      {"min_tokens", [](SamplingParams& p) { p.min_tokens = 17; }},
      {"logit_bias", [](SamplingParams& p) { p.logit_bias = {{-1, 0.0F}}; }},
      {"logit_bias", [](SamplingParams& p) { p.logit_bias = {{1, kNan}}; }},
      {"logit_bias", [](SamplingParams& p) { p.logit_bias = {{1, 101.0F}}; }},
      {"stop_token_ids", [](SamplingParams& p) { p.stop_token_ids = {-5}; }},
      {"repetition_detection.max_pattern_size", [](SamplingParams& p) { p.repetition.max_pattern_tokens = 257; }},
      {"repetition_detection.min_pattern_size", [](SamplingParams& p) { p.repetition = {3, 2, 2}; }},
      {"repetition_detection.min_count", [](SamplingParams& p) { p.repetition = {0, 2, 1}; }},
  };
  for (const Case& c : cases) {
    SamplingParams params;
    c.invalidate(params);
    const Result<void> result = params.validate();
    ASSERT_FALSE(result.has_value()) << c.field;
    EXPECT_EQ(result.error().field, c.field);
    EXPECT_EQ(result.error().code, ErrorCode::invalid_argument);
    EXPECT_FALSE(result.error().remedy.empty());
  }
}

TEST(SamplingParams, AcceptsDefaultsAndRangeLimits) {
  SamplingParams params;
  EXPECT_TRUE(params.validate().has_value());
  params.temperature = 2.0F;
  params.top_k = -1;
  params.min_p = 1.0F;
  params.presence_penalty = -2.0F;
  params.logprobs = 20;
  params.min_tokens = params.max_tokens;
  params.logit_bias = {{3, -100.0F}};
  EXPECT_TRUE(params.validate().has_value());
}

}  // namespace
}  // namespace quire
