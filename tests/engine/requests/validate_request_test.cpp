// The bounds of each field that a client sets, and the texts of the errors outside of them. The functions are called directly, as submit()
// and append() call them.
#include "engine/requests/validate_request.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/context_overflow.h"

namespace quire {
namespace {

constexpr std::uint32_t kKnownTokens = 200;  // size of the vocabulary
constexpr std::uint32_t kContext = 64;       // max_model_len

using RequestChange = std::function<void(EngineRequest&)>;

struct FieldCase {
  RequestChange change;
  std::string error;  // empty: the request is valid
};

EngineRequest valid_request() {
  EngineRequest request;
  request.prompt = {1, 2, 3};
  return request;
}

EngineOptions checked_options(std::uint32_t max_forks = 256) {
  EngineOptions options;
  options.scheduler.max_model_len = kContext;
  options.max_fork_family = max_forks;
  return options;
}

std::string text_of(const Result<void>& valid) {
  return valid ? "" : valid.error().to_string();
}

void expect_texts(const std::vector<FieldCase>& cases, const RequestChange& prepare, ErrorCode code = ErrorCode::invalid_argument,
                  const EngineOptions& options = checked_options(), std::uint32_t vocab_size = kKnownTokens) {
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    EngineRequest request = valid_request();
    prepare(request);
    cases[i].change(request);
    const Result<void> valid = validate_request(request, options, vocab_size);
    EXPECT_EQ(text_of(valid), cases[i].error);
    if (!valid) EXPECT_EQ(valid.error().code, code);
  }
}

void unchanged(EngineRequest& /*request*/) {}

TEST(ValidateRequest, AcceptsAPriorityOnlyUnderThePriorityPolicy) {
  EngineOptions options = checked_options();
  expect_texts({{[](EngineRequest& r) { r.priority = -3; },
                 "priority: is -3, but the scheduling policy is first come, first served; start the server with --scheduling-policy "
                 "priority, or leave it out"},
                {[](EngineRequest& r) { r.priority = 0; }, ""}},
               unchanged, ErrorCode::invalid_argument, options);
  options.scheduler.policy = SchedulingPolicy::priority;
  expect_texts({{[](EngineRequest& r) { r.priority = -3; }, ""}}, unchanged, ErrorCode::invalid_argument, options);
}

TEST(ValidateRequest, BoundsTheTags) {
  const std::string longest(256, 'x'), too_long(257, 'x');
  expect_texts({{[&](EngineRequest& r) { r.tags = {.job = longest, .tool = longest, .hints = {{longest, longest}}}; }, ""},
                {[&](EngineRequest& r) { r.tags.job = too_long; }, "job_id: has 257 bytes; use at most 256"},
                {[&](EngineRequest& r) { r.tags.tool = too_long; }, "tool: has 257 bytes; use at most 256"},
                {[&](EngineRequest& r) { r.tags.hints.assign(16, {"a", "b"}); }, ""},
                {[&](EngineRequest& r) { r.tags.hints.assign(17, {"a", "b"}); }, "hints: has 17 hints; use at most 16"},
                {[&](EngineRequest& r) { r.tags.hints = {{"a", "b"}, {too_long, "b"}}; },
                 "hints: has a name or value of 257 bytes; use at most 256"},
                {[&](EngineRequest& r) { r.tags.hints = {{"a", "b"}, {"a", too_long}}; },
                 "hints: has a name or value of 257 bytes; use at most 256"}},
               unchanged);
}

TEST(ValidateRequest, BoundsTheNumberOfAnswers) {
  expect_texts({{[](EngineRequest& r) { r.n = 0; }, "n: is 0; use 1 to 128"},
                {[](EngineRequest& r) { r.n = 1; }, ""},
                {[](EngineRequest& r) { r.n = 128; }, ""},
                {[](EngineRequest& r) { r.n = 129; }, "n: is 129; use 1 to 128"}},
               unchanged);
  EXPECT_EQ(text_of(validate_count(0)), "n: is 0; use 1 to 128");
  EXPECT_EQ(text_of(validate_count(128)), "");
  EXPECT_EQ(text_of(validate_count(129)), "n: is 129; use 1 to 128");
}

TEST(ValidateRequest, LeavesRoomInTheContextForOneToken) {
  const std::string too_long = overflow_error("prompt", {.prompt_tokens = kContext, .max_model_len = kContext}).to_string();
  expect_texts({{[](EngineRequest& r) { r.prompt.clear(); }, "prompt: is empty; send at least one token"},
                {[](EngineRequest& r) { r.prompt.assign(kContext - 1, 1); }, ""},
                {[](EngineRequest& r) { r.prompt.assign(kContext, 1); }, too_long}},
               unchanged);
}

TEST(ValidateRequest, ClipsTheAnswerToTheRestOfTheContext) {
  struct Clip {
    std::uint32_t prompt, max_tokens, min_tokens, clipped_max, clipped_min;
  };
  for (const Clip& clip : {Clip{48, 16, 3, 16, 3}, Clip{49, 16, 3, 15, 3}, Clip{60, 16, 4, 4, 4}, Clip{60, 16, 5, 4, 4},
                           Clip{63, 16, 16, 1, 1}, Clip{10, 5, 2, 5, 2}}) {
    SCOPED_TRACE(clip.prompt);
    EngineRequest request = valid_request();
    request.prompt.assign(clip.prompt, 1);
    request.sampling.max_tokens = clip.max_tokens;
    request.sampling.min_tokens = clip.min_tokens;
    ASSERT_TRUE(validate_request(request, checked_options(), kKnownTokens));
    EXPECT_EQ(request.sampling.max_tokens, clip.clipped_max);
    EXPECT_EQ(request.sampling.min_tokens, clip.clipped_min);
  }
}

TEST(ValidateRequest, AcceptsOnlyTokensOfTheVocabulary) {
  const auto wrong = [](const std::string& field, int id) {
    return field + ": token id " + std::to_string(id) + " is not in the vocabulary; use ids from 0 to 199";
  };
  std::vector<FieldCase> cases{{[](EngineRequest& r) { r.prompt = {0, 199}; }, ""},
                               {[](EngineRequest& r) { r.prompt = {0, -1}; }, wrong("prompt", -1)}};
  for (const TokenId id : {199, 200}) {
    const auto add = [&](const std::string& field, RequestChange change) {
      cases.push_back({std::move(change), id == 199 ? "" : wrong(field, id)});
    };
    add("prompt", [=](EngineRequest& r) { r.prompt = {5, id}; });
    add("stop_token_ids", [=](EngineRequest& r) { r.sampling.stop_token_ids = {5, id}; });
    add("logit_bias", [=](EngineRequest& r) { r.sampling.logit_bias = {{5, 1.0F}, {id, 1.0F}}; });
    add("allowed_token_ids", [=](EngineRequest& r) { r.sampling.allowed_token_ids = {5, id}; });
    add("bad_words", [=](EngineRequest& r) { r.sampling.bad_words = {{5}, {6, id}}; });
    add("timestamps.first_time", [=](EngineRequest& r) { r.sampling.timestamps.first_time = id; });
    add("timestamps.not_first", [=](EngineRequest& r) { r.sampling.timestamps.not_first = {5, id}; });
    add("timestamps.begins", [=](EngineRequest& r) { r.sampling.timestamps.begins = {{5}, {6, id}}; });
    add("pooling.logits_of", [=](EngineRequest& r) {
      r.pooling = true;
      r.sampling.pooling.logits_of = {5, id};
    });
  }
  cases.push_back({[](EngineRequest& r) { r.sampling.top_p = 2.0F; }, "top_p: 2 is out of range; use a value above 0 and at most 1"});
  expect_texts(cases, unchanged);

  EXPECT_EQ(text_of(validate_tokens({0, 199}, kKnownTokens)), "");
  EXPECT_EQ(text_of(validate_tokens({0, 200}, kKnownTokens)), wrong("prompt", 200));
  EXPECT_EQ(text_of(validate_tokens({-1, 0}, kKnownTokens)), wrong("prompt", -1));
}

TEST(ValidateRequest, RefusesPoolingParametersThatHaveNoEffect) {
  expect_texts(
      {{[](EngineRequest& r) { r.sampling.pooling.kind = PoolingKind::mean; },
        "pooling: is off, but pooling parameters are set; turn pooling on"},
       {[](EngineRequest& r) { r.sampling.pooling.logits_of = {1}; }, "pooling: is off, but pooling parameters are set; turn pooling on"}},
      unchanged);
  const std::string no_tokens = ": is set, but a pooling request generates no tokens; leave it out";
  expect_texts(
      {{[](EngineRequest& r) { r.sampling.pooling = {.kind = PoolingKind::mean, .logits_of = {1}}; },
        "pooling.kind: is set, but logits are computed for the last token only; leave it out"},
       {[](EngineRequest& r) { r.sampling.pooling.kind = PoolingKind::mean; }, ""},
       {[](EngineRequest& r) { r.sampling.pooling.logits_of.assign(256, 1); }, ""},
       {[](EngineRequest& r) { r.sampling.pooling.logits_of.assign(257, 1); }, "pooling.logits_of: has 257 tokens; use at most 256"},
       {[](EngineRequest& r) { r.n = 2; }, "n" + no_tokens},
       {[](EngineRequest& r) { r.beam_search.emplace(); }, "beam_search" + no_tokens},
       {[](EngineRequest& r) { r.structured_output.emplace(); }, "structured_output" + no_tokens},
       {[](EngineRequest& r) { r.sampling.logprobs = 0; }, "logprobs" + no_tokens},
       {[](EngineRequest& r) { r.sampling.prompt_logprobs = 0; }, "prompt_logprobs" + no_tokens},
       {[](EngineRequest& r) { r.sampling.routed_experts = true; }, "routed_experts" + no_tokens}},
      [](EngineRequest& r) { r.pooling = true; });
}

TEST(ValidateRequest, RefusesSessionsThatNeedTheWholePrompt) {
  const std::string no_session = ": is set, but a session does not support it; leave it out";
  expect_texts(
      {{unchanged, ""},
       {[](EngineRequest& r) { r.n = 2; }, "n" + no_session},
       {[](EngineRequest& r) { r.beam_search.emplace(); }, "beam_search" + no_session},
       {[](EngineRequest& r) { r.pooling = true; }, "pooling" + no_session},
       {[](EngineRequest& r) { r.sampling.prompt_logprobs = 0; }, "prompt_logprobs" + no_session},
       {[](EngineRequest& r) { r.sampling.routed_experts = true; }, "routed_experts" + no_session}},
      [](EngineRequest& r) { r.session = true; }, ErrorCode::unsupported);
}

TEST(ValidateRequest, BoundsTheWidthOfABeamSearch) {
  const auto search = [](std::uint32_t width) {
    return [width](EngineRequest& r) {
      r.n = width;
      r.beam_search.emplace();
    };
  };
  expect_texts({{search(1), ""}, {search(10), ""}, {search(11), "n: is 11; use 1 to 10 with beam search"}}, unchanged);
  expect_texts({{search(3), ""}, {search(4), "n: is 4; use 1 to 3 with beam search"}}, unchanged, ErrorCode::invalid_argument,
               checked_options(), 7);
  const auto needs = [](std::uint32_t width, std::uint32_t max_forks) {
    return "n: is " + std::to_string(width) + ", but a beam search of this width needs --max-forks " + std::to_string(width + 1) +
           ", which is " + std::to_string(max_forks);
  };
  expect_texts({{search(3), ""},
                {search(4), needs(4, 4) + "; use at most 3, or start the server with a larger --max-forks"},
                {search(5), needs(5, 4) + "; use at most 3, or start the server with a larger --max-forks"}},
               unchanged, ErrorCode::invalid_argument, checked_options(4));
  expect_texts({{search(1), ""}, {search(2), needs(2, 2) + "; use at most 1, or start the server with a larger --max-forks"}}, unchanged,
               ErrorCode::invalid_argument, checked_options(2));
  expect_texts({{search(1), needs(1, 1) + "; start the server with a larger --max-forks"}}, unchanged, ErrorCode::invalid_argument,
               checked_options(1));
}

TEST(ValidateRequest, RefusesParametersThatABeamSearchIgnores) {
  const std::string refused = ": is set, but beam search does not support it; leave it out, or turn beam search off";
  const auto penalty = [](double value) { return [value](EngineRequest& r) { r.beam_search->length_penalty = value; }; };
  expect_texts({{penalty(10.0), ""},
                {penalty(-10.0), ""},
                {penalty(10.5), "length_penalty: is 10.5; use -10 to 10"},
                {penalty(-10.5), "length_penalty: is -10.5; use -10 to 10"},
                {penalty(std::numeric_limits<double>::quiet_NaN()), "length_penalty: is nan; use -10 to 10"},
                {[](EngineRequest& r) { r.sampling.stop_token_ids = {3}; }, "stop_token_ids" + refused},
                {[](EngineRequest& r) { r.sampling.min_tokens = 1; }, "min_tokens" + refused},
                {[](EngineRequest& r) { r.sampling.prompt_logprobs = 0; }, "prompt_logprobs" + refused},
                {[](EngineRequest& r) { r.sampling.routed_experts = true; }, "routed_experts" + refused},
                {[](EngineRequest& r) { r.sampling.logit_bias = {{3, 1.0F}}; }, "logit_bias" + refused},
                {[](EngineRequest& r) { r.sampling.repetition_penalty = 1.5F; }, "repetition_penalty" + refused},
                {[](EngineRequest& r) { r.sampling.presence_penalty = -0.5F; }, "presence_penalty" + refused},
                {[](EngineRequest& r) { r.sampling.frequency_penalty = 0.5F; }, "frequency_penalty" + refused},
                {[](EngineRequest& r) { r.tags.job = "job"; }, "job_id" + refused},
                {[](EngineRequest& r) { r.sampling.allowed_token_ids = {3}; }, "allowed_token_ids" + refused},
                {[](EngineRequest& r) { r.sampling.bad_words = {{3}}; }, "bad_words" + refused},
                {[](EngineRequest& r) { r.sampling.timestamps.first_time = 1; }, "timestamps" + refused},
                {[](EngineRequest& r) { r.sampling.repetition = {.min_pattern_tokens = 0, .max_pattern_tokens = 1, .min_count = 2}; },
                 "repetition_detection" + refused},
                {[](EngineRequest& r) { r.sampling.logprobs = 20; }, ""}},
               [](EngineRequest& r) { r.beam_search.emplace(); });
}

TEST(ValidateRequest, LimitsTheRowsOfAPoolingRequest) {
  EngineRequest request = valid_request();
  request.sampling.pooling.kind = PoolingKind::all;
  request.prompt.assign(16, 1);
  EXPECT_EQ(text_of(validate_rows(request, 1U << 20U)), "");
  request.prompt.assign(17, 1);
  EXPECT_EQ(
      text_of(validate_rows(request, 1U << 20U)),
      "prompt: has 17 tokens; with 1048576 values per token, the output exceeds the limit of 16777216 values; send at most 16 tokens");
  request.sampling.pooling.kind = PoolingKind::mean;
  EXPECT_EQ(text_of(validate_rows(request, 1U << 20U)), "") << "its output is one row";
  // 257 tokens with 65,281 values each are one value too many.
  request.sampling.pooling.kind = PoolingKind::all;
  request.prompt.assign(257, 1);
  EXPECT_NE(text_of(validate_rows(request, 65'281)), "");
}

TEST(ValidateRequest, NeedsAnOutputMatrixForTokensAndLogits) {
  const std::string refused =
      "model: bert cannot generate text: it has no output matrix (lm_head.weight), and its config does not tie the output matrix to the "
      "embeddings; send texts to /v1/embeddings, or serve a model folder that includes lm_head.weight";
  ModelInfo model;
  model.name = "bert";
  for (const bool has_output : {true, false}) {
    model.has_output = has_output;
    EngineRequest request = valid_request();
    EXPECT_EQ(text_of(validate_output(request, model)), has_output ? "" : refused);
    request.pooling = true;
    EXPECT_EQ(text_of(validate_output(request, model)), "");
    request.sampling.pooling.logits_of = {1};
    EXPECT_EQ(text_of(validate_output(request, model)), has_output ? "" : refused);
  }
}

TEST(ValidateRequest, TakesAnEncoderInputOfTheModelsSizeAndNothingElse) {
  ModelInfo model;
  model.name = "whisper";
  EngineRequest request = valid_request();
  EXPECT_EQ(text_of(validate_encoder_input(request, model)), "") << "the model has no encoder";
  const auto give = [&request](std::size_t num_values) {
    request.encoder_input = std::make_shared<const EncoderInput>(EncoderInput{std::vector<float>(num_values)});
  };
  give(30);
  EXPECT_EQ(text_of(validate_encoder_input(request, model)), "encoder_input: is set, but the model has no encoder; leave it out");
  model.encoder = {.num_positions = 3, .num_features = 5};
  EXPECT_EQ(text_of(validate_encoder_input(request, model)), "");
  for (const std::size_t num_values : {29U, 31U}) {
    give(num_values);
    EXPECT_EQ(text_of(validate_encoder_input(request, model)),
              "encoder_input: has " + std::to_string(num_values) + " values; send 30 values");
  }
  request.encoder_input = nullptr;
  EXPECT_EQ(text_of(validate_encoder_input(request, model)),
            "model: whisper accepts audio input only; send audio to /v1/audio/transcriptions");
  const std::pair<std::string, RequestChange> refused[] = {{"n", [](EngineRequest& r) { r.n = 2; }},
                                                           {"beam_search", [](EngineRequest& r) { r.beam_search.emplace(); }},
                                                           {"session", [](EngineRequest& r) { r.session = true; }},
                                                           {"pooling", [](EngineRequest& r) { r.pooling = true; }}};
  for (const auto& [field, change] : refused) {
    request = valid_request();
    give(30);
    change(request);
    const Result<void> valid = validate_encoder_input(request, model);
    EXPECT_EQ(text_of(valid), field + ": is set, but a request with an encoder input does not support it; leave it out");
    EXPECT_EQ(valid.error().code, ErrorCode::unsupported);
  }
}

}  // namespace
}  // namespace quire
