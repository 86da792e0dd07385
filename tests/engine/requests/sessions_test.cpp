// Streaming sessions: each answer equals the answer of a separate request whose prompt is everything before it.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "engine/simulated_engine.h"

namespace quire {
namespace {

class SessionsTest : public testing::TestWithParam<Mode> {};

INSTANTIATE_TEST_SUITE_P(Modes, SessionsTest, testing::ValuesIn(played_modes()), mode_name);

EngineRequest session_of(std::uint32_t length, std::uint32_t max_tokens, TokenId first = 1) {
  EngineRequest request = make_request(length, max_tokens, first);
  request.session = true;
  return request;
}

// Computes what a session must answer to each of its inputs.
struct NaiveSession {
  EngineRequest request;
  std::vector<TokenId> answer(const std::vector<TokenId>& input) {
    request.prompt.insert(request.prompt.end(), input.begin(), input.end());
    const Expected wanted = expected(request);
    request.prompt.insert(request.prompt.end(), wanted.tokens.begin(), wanted.tokens.end());
    num_stopped += wanted.reason == FinishReason::stop ? 1 : 0;
    return wanted.tokens;
  }
  std::uint32_t num_stopped = 0;
};

TEST_P(SessionsTest, AnswerLikeRequestsWithAllEarlierTokens) {
  Random random(7);
  std::uint32_t num_stopped = 0, num_answers = 0;
  for (const std::uint32_t num_blocks : {200U, 40U}) {
    EngineOptions options;
    options.cache.num_blocks = num_blocks;
    Collector sink;
    const auto engine = start(GetParam(), {.options = options});
    struct Open {
      RequestId id;
      NaiveSession naive;
      std::vector<std::vector<TokenId>> inputs;
      std::vector<TokenId> wanted;
    };
    for (std::uint32_t round = 0; round < 30; ++round) {
      std::vector<Open> sessions;
      for (std::uint32_t i = 0; i < 3; ++i) {
        EngineRequest request = session_of(static_cast<std::uint32_t>(random.between(1, 30)),
                                           static_cast<std::uint32_t>(random.between(1, 12)), static_cast<TokenId>(random.below(100)));
        request.sampling.stop_token_ids = {static_cast<TokenId>(random.below(150)), static_cast<TokenId>(random.below(150))};
        Open open{.id = engine->submit(request, sink).value(), .naive = {.request = request}, .inputs = {}, .wanted = {}};
        open.wanted = open.naive.answer({});
        for (std::uint64_t k = random.below(5); k > 0; --k) {
          std::vector<TokenId> input(random.between(1, 12));
          for (TokenId& token : input) token = static_cast<TokenId>(random.below(190));
          const auto answer = open.naive.answer(input);
          open.wanted.insert(open.wanted.end(), answer.begin(), answer.end());
          open.inputs.push_back(std::move(input));
        }
        sessions.push_back(std::move(open));
      }
      // Sends all inputs together, or each one after the previous answer.
      const bool waits = random.chance(0.5);
      for (Open& open : sessions) {
        for (std::uint32_t k = 0; k < open.inputs.size(); ++k) {
          if (waits) (void)sink.wait_for_inputs(open.id, k + 1);
          ASSERT_TRUE(engine->append(open.id, open.inputs[k]).has_value());
        }
        ASSERT_TRUE(engine->append(open.id, {}).has_value());
      }
      for (const Open& open : sessions) {
        const Collector::Answer answer = sink.wait(open.id);
        EXPECT_EQ(answer.tokens, open.wanted);
        EXPECT_EQ(answer.num_inputs_ended, open.inputs.size() + 1);
        EXPECT_EQ(answer.num_finals, 1U);
        EXPECT_EQ(answer.num_outputs_after_final, 0U);
        num_stopped += open.naive.num_stopped;
        num_answers += answer.num_inputs_ended;
      }
    }
    engine->stop(10.0);
    EXPECT_EQ(engine->stats().num_free_blocks, engine->stats().num_blocks);
  }
  EXPECT_GT(num_answers, 300U);
  EXPECT_GT(num_stopped, 30U) << "an async step may run past these answers";
}

TEST_P(SessionsTest, AnIdleSessionKeepsItsBlocksWithoutDelayingOthers) {
  Collector sink;
  const auto engine = start(GetParam(), {});
  const RequestId id = engine->submit(session_of(40, 4), sink).value();
  (void)sink.wait_for_inputs(id, 1);
  const EngineRequest other = make_request(20, 6, 50);
  expect_equal(sink.wait(engine->submit(other, sink).value()), expected(other));
  EXPECT_LT(engine->stats().num_free_blocks, engine->stats().num_blocks);
  engine->finish(id, FinishReason::abort);
  EXPECT_EQ(sink.wait(id).reason, FinishReason::abort);
  engine->stop(10.0);
  EXPECT_EQ(engine->stats().num_free_blocks, engine->stats().num_blocks);
}

// Idle sessions hold the whole cache. Other requests are answered immediately, and the sessions continue with the same tokens.
TEST_P(SessionsTest, IdleSessionsYieldTheirBlocksAndContinueWithTheSameTokens) {
  for (const bool caches : {true, false}) {
    for (const SchedulingPolicy policy : {SchedulingPolicy::fcfs, SchedulingPolicy::continuum}) {
      EngineOptions options;
      options.cache.num_blocks = 16;
      options.cache.enable_prefix_caching = caches;
      options.scheduler.policy = policy;
      Collector sink;
      const auto engine = start(GetParam(), {.options = options});
      Random random(3);
      struct Open {
        RequestId id;
        NaiveSession naive;
        std::vector<TokenId> wanted;
      };
      std::vector<Open> sessions;
      for (std::uint32_t i = 0; i < 4; ++i) {
        const EngineRequest request = session_of(50, 6, static_cast<TokenId>(20 * i));
        Open open{.id = engine->submit(request, sink).value(), .naive = {.request = request}, .wanted = {}};
        open.wanted = open.naive.answer({});
        (void)sink.wait_for_inputs(open.id, 1);
        sessions.push_back(std::move(open));
      }
      const RequestId child = engine->fork(sessions[0].id, {}, sink).value();
      (void)sink.wait_for_inputs(child, 1);
      for (std::uint32_t round = 2; round <= 5; ++round) {
        const EngineRequest other = make_request(150, 20, static_cast<TokenId>(random.below(100)));
        const RequestId id = engine->submit(other, sink).value();
        ASSERT_TRUE(sink.wait_for_end(id, 20'000)) << "idle sessions keep another request waiting";
        expect_equal(sink.wait(id), expected(other));
        for (Open& open : sessions) {
          const std::vector<TokenId> input(random.between(1, 9), static_cast<TokenId>(random.below(190)));
          const auto answer = open.naive.answer(input);
          open.wanted.insert(open.wanted.end(), answer.begin(), answer.end());
          ASSERT_TRUE(engine->append(open.id, input).has_value());
          EXPECT_EQ(sink.wait_for_inputs(open.id, round).tokens, open.wanted) << "caches " << caches << ", round " << round;
        }
      }
      engine->finish(child, FinishReason::stop);
      for (const Open& open : sessions) engine->finish(open.id, FinishReason::stop);
      engine->stop(10.0);
      EXPECT_EQ(engine->stats().num_free_blocks, engine->stats().num_blocks);
    }
  }
}

// Any session fits into the cache with all its inputs, but no two do.
TEST_P(SessionsTest, SessionsThatDoNotFitTogetherAreAllAnswered) {
  EngineOptions options;
  options.cache.num_blocks = 9;
  Collector sink;
  const auto engine = start(GetParam(), {.options = options});
  struct Open {
    RequestId id;
    NaiveSession naive;
    std::vector<TokenId> wanted;
  };
  std::vector<Open> sessions;
  for (const TokenId first : {1, 60, 120}) {
    const EngineRequest request = session_of(20, 4, first);
    sessions.push_back({.id = engine->submit(request, sink).value(), .naive = {.request = request}, .wanted = {}});
    sessions.back().wanted = sessions.back().naive.answer({});
  }
  for (const Open& open : sessions) (void)sink.wait_for_inputs(open.id, 1);
  for (std::uint32_t turn = 0; turn < 3; ++turn) {
    for (Open& open : sessions) {
      const std::vector<TokenId> input(20, static_cast<TokenId>(30 + turn));
      ASSERT_TRUE(engine->append(open.id, input).has_value());
      const auto answer = open.naive.answer(input);
      open.wanted.insert(open.wanted.end(), answer.begin(), answer.end());
    }
  }
  for (const Open& open : sessions) ASSERT_TRUE(engine->append(open.id, {}).has_value());
  for (const Open& open : sessions) EXPECT_EQ(sink.wait(open.id).tokens, open.wanted);
  engine->stop(10.0);
  EXPECT_EQ(engine->stats().num_free_blocks, engine->stats().num_blocks);
}

TEST_P(SessionsTest, ContinueAfterACacheReset) {
  Collector sink;
  const auto engine = start(GetParam(), {});
  const EngineRequest request = session_of(40, 5);
  NaiveSession naive{.request = request};
  std::vector<TokenId> wanted = naive.answer({});
  const RequestId id = engine->submit(request, sink).value();
  (void)sink.wait_for_inputs(id, 1);
  Answered reset;
  engine->reset_prefix_cache({.preempt_running = true}, reset.callback());
  (void)reset.wait();
  const auto more = naive.answer({7, 8, 9});
  wanted.insert(wanted.end(), more.begin(), more.end());
  ASSERT_TRUE(engine->append(id, {7, 8, 9}).has_value());
  EXPECT_EQ(sink.wait_for_inputs(id, 2).tokens, wanted);
}

TEST_P(SessionsTest, ReportInputThatDoesNotFit) {
  Collector sink;
  const auto engine = start(GetParam(), {});
  const RequestId id = engine->submit(session_of(100, 60), sink).value();
  (void)sink.wait_for_inputs(id, 1);
  EXPECT_EQ(engine->append(id, std::vector<TokenId>(200, 1)).error().code, ErrorCode::invalid_argument)
      << "it exceeds the context whatever the answers are";
  EXPECT_EQ(engine->append(id, {kVocab}).error().field, "prompt");
  ASSERT_TRUE(engine->append(id, std::vector<TokenId>(150, 1)).has_value());
  const Collector::Answer answer = sink.wait(id);
  EXPECT_EQ(answer.reason, FinishReason::error);
  ASSERT_TRUE(answer.refusal.has_value());
  EXPECT_EQ(answer.refusal->field, "session");
  // The engine accepts and drops input while its thread is still in the round that delivered the end.
  Result<void> late;
  for (int i = 0; i < 10'000 && (late = engine->append(id, {1})).has_value(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code, ErrorCode::not_found);
}

// A session may fill its context except for one token, which the answer needs.
TEST_P(SessionsTest, MayFillTheContextExceptForOneToken) {
  for (const std::uint32_t left : {0U, 1U}) {
    Collector sink;
    const auto engine = start(GetParam(), {});
    const std::uint32_t max_model_len = engine->options().scheduler.max_model_len;
    const RequestId id = engine->submit(session_of(10, 5), sink).value();
    const auto num_tokens = static_cast<std::uint32_t>(10 + sink.wait_for_inputs(id, 1).tokens.size());
    EXPECT_FALSE(engine->append(id, std::vector<TokenId>(max_model_len - 10, 1)).has_value());
    ASSERT_TRUE(engine->append(id, std::vector<TokenId>(max_model_len - num_tokens - left, 1)).has_value());
    if (left == 0) {
      const Collector::Answer answer = sink.wait(id);
      EXPECT_EQ(answer.reason, FinishReason::error);
      ASSERT_TRUE(answer.refusal.has_value());
      EXPECT_EQ(answer.refusal->field, "session");
    } else {
      EXPECT_EQ(sink.wait_for_inputs(id, 2).tokens.size(), num_tokens - 10 + 1) << "one more token";
    }
  }
}

TEST_P(SessionsTest, OnlySessionsTakeInput) {
  Collector sink;
  const auto engine = start(GetParam(), {});
  Gate gate;
  Answered paused;
  engine->pause({.mode = PauseMode::keep, .clear_cache = false}, paused.callback());
  ASSERT_TRUE(paused.wait().has_value());
  const RequestId plain = engine->submit(make_request(20, 3), sink).value();
  EXPECT_EQ(engine->append(plain, {1}).error().code, ErrorCode::invalid_argument);
  const RequestId id = engine->submit(session_of(20, 3), sink).value();
  ASSERT_TRUE(engine->append(id, {1}).has_value()) << "input may come before the session starts";
  ASSERT_TRUE(engine->append(id, {}).has_value());
  EXPECT_EQ(engine->append(id, {1}).error().code, ErrorCode::invalid_argument) << "the client has closed the input";
  Answered resumed;
  engine->resume(resumed.callback());
  EXPECT_EQ(sink.wait(id).num_inputs_ended, 2U);
  for (const char* field : {"n", "beam_search", "pooling", "prompt_logprobs"}) {
    EngineRequest request = session_of(20, 3);
    const std::string_view name = field;
    if (name == "n") request.n = 2;
    if (name == "beam_search") request.beam_search.emplace();
    if (name == "pooling") request.pooling = true;
    if (name == "prompt_logprobs") request.sampling.prompt_logprobs = 1;
    const auto refused = engine->submit(request, sink);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().field, field);
  }
}

TEST_P(SessionsTest, EndWithTheEngine) {
  Collector sink;
  const auto engine = start(GetParam(), {});
  const RequestId id = engine->submit(session_of(20, 3), sink).value();
  (void)sink.wait_for_inputs(id, 1);
  EXPECT_EQ(engine->stop(0.0), 1U);
  EXPECT_EQ(sink.wait(id).reason, FinishReason::abort);
}

// Forks happen during an answer and after it. The parent, its children and its grandchild then continue independently.
TEST_P(SessionsTest, AForkContinuesWithAllEarlierTokens) {
  for (const std::uint32_t num_blocks : {200U, 30U}) {
    EngineOptions options;
    options.cache.num_blocks = num_blocks;
    options.cache.block_size = num_blocks == 200 ? 16 : 4;
    options.scheduler.max_num_waiting = 500;
    for (const bool is_answered : {false, true}) {
      for (std::uint32_t length = 9; length < 17; ++length) {
        Collector sink;
        const auto engine = start(GetParam(), {.options = options});
        EngineRequest request = session_of(length, 8);
        request.sampling.ignore_eos = true;
        NaiveSession naive{.request = request};
        std::vector<TokenId> wanted = naive.answer({});
        const RequestId parent = engine->submit(request, sink).value();
        is_answered ? (void)sink.wait_for_inputs(parent, 1) : sink.wait_for_tokens(parent, 2);
        const RequestId first = engine->fork(parent, {.n = 2}, sink).value();
        const RequestId grandchild = [&] {
          (void)sink.wait_for_inputs(first, 1);
          return engine->fork(first, {}, sink).value();
        }();
        std::uint32_t number = 0;
        for (const RequestId id : {parent, first, RequestId{first.value + 1}, grandchild}) {
          const std::vector<TokenId> input(3 + number, static_cast<TokenId>(50 + number));
          ++number;
          ASSERT_TRUE(engine->append(id, input).has_value());
          ASSERT_TRUE(engine->append(id, {}).has_value());
          std::vector<TokenId> all = wanted;
          const auto more = NaiveSession{naive}.answer(input);
          all.insert(all.end(), more.begin(), more.end());
          const Collector::Answer answer = sink.wait(id);
          EXPECT_EQ(answer.tokens, all) << "session " << number;
          EXPECT_EQ(answer.num_inputs_ended, 2U);
        }
        engine->stop(10.0);
        EXPECT_EQ(engine->stats().num_forks, 3U);
        EXPECT_EQ(engine->stats().num_free_blocks, engine->stats().num_blocks);
      }
    }
  }
}

// With async scheduling a step that starts too early samples a token after the answer. That token would fill a block, and the block hash
// must not contain it.
TEST_P(SessionsTest, BlockHashesContainNoTokenSampledAfterAnAnswer) {
  EngineOptions options;
  options.cache.block_size = 4;
  Collector sink;
  const auto engine = start(GetParam(), {.options = options});
  for (std::uint32_t length = 20; length < 28; ++length) {
    EngineRequest request = session_of(length, 40, static_cast<TokenId>(length));
    std::vector<TokenId> known = request.prompt;
    for (int i = 0; i < 3; ++i) known.push_back(simulated_token(known, kVocab));
    request.sampling.stop_token_ids = {known.back()};  // the scheduler cannot foresee this token
    request.sampling.ignore_eos = true;
    const EngineRequest as_sent = request;
    const Expected first = expected(as_sent);
    known.resize(length);
    known.insert(known.end(), first.tokens.begin(), first.tokens.end());
    const RequestId id = engine->submit(request, sink).value();
    (void)sink.wait_for_inputs(id, 1);
    ASSERT_TRUE(engine->append(id, {3, 1, 4, 1, 5}).has_value());
    (void)sink.wait_for_inputs(id, 2);
    // The prompt of this request contains the token that the early step sampled.
    EngineRequest other = make_request(1, 8);
    other.prompt = known;
    other.prompt.push_back(simulated_token(other.prompt, kVocab));
    other.prompt.insert(other.prompt.end(), {9, 9});
    expect_equal(sink.wait(engine->submit(other, sink).value()), expected(other));
    ASSERT_TRUE(engine->append(id, {}).has_value());
    sink.wait(id);
  }
  engine->stop(10.0);
}

}  // namespace
}  // namespace quire
