// Answers follow their grammars and equal the answers that each request gets alone.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>

#include "engine/paused_engine.h"
#include "engine/requests/naive_beams.h"
#include "engine/simulated_engine.h"
#include "engine/spelling_model.h"
#include "runtime/grammar/grammar_matcher.h"

namespace quire {
namespace {

using Kind = StructuredOutput::Kind;

const std::vector<StructuredOutput>& grammars() {
  static const std::vector<StructuredOutput> all = {
      {.kind = Kind::json_schema,
       .text = R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"enum":["x","y"]}},"required":["a","b"]})"},
      {.kind = Kind::json_schema, .text = R"({"type":"array","items":{"type":"boolean"},"minItems":2,"maxItems":5})"},
      {.kind = Kind::regex, .text = "[a-f]{3,9}(one|two)"},
      {.kind = Kind::lark, .text = "start: word (\" \" word)*\nword: /[a-z]{2,5}/"},
      {.kind = Kind::regex, .text = "[0-9]{4}", .begin_after = {'k'}},
      {.kind = Kind::regex, .text = "[0-9]+", .begin_after = {'k', 'm'}}};
  return all;
}

// Applies the grammar directly, one token at a time.
Expected constrained(const EngineRequest& request, const GrammarCompiler& compiler) {
  if (!request.structured_output) return expected(request);
  GrammarMatcher matcher = compiler.compile(*request.structured_output).value();
  const std::vector<TokenId>& marker = request.structured_output->begin_after;
  Expected answer;
  std::vector<TokenId> history = request.prompt;
  std::vector<std::uint32_t> allowed((kVocab + 31) / 32);
  bool begun = marker.empty();
  while (answer.tokens.size() < request.sampling.max_tokens) {
    if (begun) EXPECT_TRUE(matcher.fill(allowed));
    const TokenId token = begun ? simulated_token(history, kVocab, allowed) : simulated_token(history, kVocab);
    history.push_back(token);
    answer.tokens.push_back(token);
    if (token == kEos) return {answer.tokens, FinishReason::stop, kEos};
    if (begun) EXPECT_TRUE(matcher.accept(token));
    begun = begun || (answer.tokens.size() >= marker.size() && std::equal(marker.rbegin(), marker.rend(), answer.tokens.rbegin()));
  }
  return answer;
}

// Returns the mask of allowed tokens after these outputs; empty allows any token.
std::vector<std::uint32_t> allowed_after(std::span<const TokenId> outputs, const StructuredOutput& grammar,
                                         const GrammarCompiler& compiler) {
  const auto marker = std::ranges::search(outputs, grammar.begin_after);
  if (marker.empty() && !grammar.begin_after.empty()) return {};
  GrammarMatcher matcher = compiler.compile(grammar).value();
  for (auto token = marker.end(); token != outputs.end(); ++token) EXPECT_TRUE(matcher.accept(*token));
  std::vector<std::uint32_t> allowed((kVocab + 31) / 32);
  EXPECT_TRUE(matcher.fill(allowed));
  return allowed;
}

std::vector<NaiveHypothesis> constrained_search(const EngineRequest& request, const GrammarCompiler& compiler) {
  const NaiveSearch search{.prompt = request.prompt, .width = request.n, .max_tokens = request.sampling.max_tokens, .eos_ids = {kEos}};
  return naive_beam_search(search, [&](std::span<const TokenId> history, std::uint32_t count) {
    const auto allowed = allowed_after(history.subspan(request.prompt.size()), *request.structured_output, compiler);
    return simulated_top_logprobs(history, kVocab, count, allowed);
  });
}

EngineRequest random_structured(Random& random) {
  EngineRequest request;
  for (std::uint64_t i = random.between(1, 40); i > 0; --i) request.prompt.push_back(static_cast<TokenId>(random.below(kEos)));
  request.sampling.temperature = 0.0F;
  request.sampling.max_tokens = static_cast<std::uint32_t>(random.between(1, 60));
  if (random.below(4) > 0) request.structured_output = grammars()[random.below(grammars().size())];
  // The answer is long enough to reach the token at which the grammar begins.
  if (request.structured_output && !request.structured_output->begin_after.empty()) request.sampling.max_tokens = 200;
  return request;
}

class StructuredOutputTest : public testing::TestWithParam<Mode> {
 protected:
  void SetUp() override {
    if (!has_structured_output()) GTEST_SKIP() << "built without llguidance";
  }
  static quire::Setup roomy(std::uint32_t num_blocks = 200) {
    quire::Setup setup;
    setup.model = spelling_model();
    setup.options.cache.num_blocks = num_blocks;
    setup.options.cache.block_size = 4;
    setup.options.scheduler.max_num_seqs = 6;
    return setup;
  }
  const std::shared_ptr<const GrammarCompiler> compiler_ =
      has_structured_output() ? GrammarCompiler::create(*spelling_model().tokenizer, kVocab).value() : nullptr;
};

TEST_P(StructuredOutputTest, EachAnswerEqualsTheAnswerAlone) {
  Random random(11);
  std::uint64_t num_constrained = 0, num_over = 0, num_preemptions = 0;
  // When grammars are compiled decides how many requests run together, so enough preemptions may take more rounds.
  for (int round = 0; round < 20 || (num_preemptions <= 10 && round < 200); ++round) {
    Collector sink;
    const auto engine = start(GetParam(), roomy(70));
    std::vector<std::pair<RequestId, EngineRequest>> asked;
    {
      const PausedEngine paused(*engine);
      for (std::uint64_t i = random.between(4, 16); i > 0; --i) {
        EngineRequest request = random_structured(random);
        asked.emplace_back(engine->submit(request, sink).value(), request);
      }
    }
    for (const auto& [id, request] : asked) {
      const Collector::Answer answer = sink.wait(id);
      expect_equal(answer, constrained(request, *compiler_));
      num_constrained += request.structured_output ? 1 : 0;
      num_over += request.structured_output && answer.reason == FinishReason::stop ? 1 : 0;
    }
    num_preemptions += engine->stats().num_preemptions;
    EXPECT_EQ(engine->stop(10.0), 0U);
  }
  EXPECT_GT(num_constrained, 60U) << "too few constrained answers";
  EXPECT_GT(num_over, 20U);
  EXPECT_GT(num_preemptions, 10U);
}

TEST_P(StructuredOutputTest, EachSiblingFollowsTheGrammarSeparately) {
  Collector sink;
  const auto engine = start(GetParam(), roomy());
  Random random(3);
  for (const StructuredOutput& grammar : grammars()) {
    EngineRequest request{.prompt = {5, 6, 7, 8, 9}, .sampling = {}};
    request.sampling.temperature = 0.0F;
    request.sampling.max_tokens = 50;
    request.n = 4;
    request.structured_output = grammar;
    const RequestId first = engine->submit(request, sink).value();
    for (std::uint64_t i = 0; i < request.n; ++i) expect_equal(sink.wait({first.value + i}), constrained(request, *compiler_));
  }
  EXPECT_EQ(engine->stats().num_forks, 3 * grammars().size()) << "each prompt is computed once";
}

// Each beam follows the grammar separately, also after it was preempted and recomputed. If the grammar leaves fewer answers than the search
// is wide, the remaining ones are refused.
TEST_P(StructuredOutputTest, BeamsFollowTheirGrammar) {
  std::uint64_t num_unfound = 0, num_found = 0;
  for (const std::uint32_t num_blocks : {200U, 24U}) {
    Collector sink;
    const auto engine = start(GetParam(), roomy(num_blocks));
    Random random(num_blocks);
    std::vector<std::pair<RequestId, EngineRequest>> asked;
    for (std::uint32_t i = 0; i < 24; ++i) {
      EngineRequest request = random_structured(random);
      if (!request.structured_output) request.structured_output = grammars()[i % grammars().size()];
      request.n = static_cast<std::uint32_t>(random.between(1, 5));
      request.sampling.max_tokens = static_cast<std::uint32_t>(random.between(4, 20));
      request.beam_search.emplace();
      asked.emplace_back(engine->submit(request, sink).value(), request);
    }
    for (const auto& [id, request] : asked) {
      const auto wanted = constrained_search(request, *compiler_);
      for (std::uint32_t i = 0; i < request.n; ++i) {
        const Collector::Answer answer = sink.wait(RequestId{id.value + i});
        if (i < wanted.size()) EXPECT_EQ(answer.tokens, wanted[i].tokens) << answer.error;
        if (i >= wanted.size()) EXPECT_EQ(answer.refusal.value_or(Error{}).field, "n") << answer.error;
        ++(i < wanted.size() ? num_found : num_unfound);
      }
    }
    EXPECT_EQ(engine->stop(10.0), 0U);
    EXPECT_EQ(engine->stats().num_free_blocks, engine->stats().num_blocks);
  }
  // The grammar allows only two answers.
  Collector sink;
  const auto engine = start(GetParam(), roomy());
  EngineRequest request{.prompt = {5, 6, 7}, .sampling = {}};
  request.structured_output = StructuredOutput{.kind = Kind::regex, .text = "yes|no"};
  request.n = 4;
  request.beam_search.emplace();
  const RequestId first = engine->submit(request, sink).value();
  for (std::uint32_t i = 0; i < 4; ++i) num_unfound += sink.wait(RequestId{first.value + i}).refusal ? 1 : 0;
  EXPECT_GE(num_unfound, 2U);
  EXPECT_GT(num_found, 50U);
}

// Each answer of a session starts the grammar again, and so do the answers of its children.
TEST_P(StructuredOutputTest, EachAnswerOfASessionFollowsTheGrammarFromItsStart) {
  Collector sink;
  const auto engine = start(GetParam(), roomy());
  for (const StructuredOutput& grammar : grammars()) {
    EngineRequest request{.prompt = {5, 6, 7, 8, 9}, .sampling = {}};
    request.sampling.temperature = 0.0F;
    request.sampling.max_tokens = 40;
    request.structured_output = grammar;
    EngineRequest part = request;
    request.session = true;
    const RequestId id = engine->submit(request, sink).value();
    std::vector<TokenId> wanted = constrained(part, *compiler_).tokens;
    part.prompt.insert(part.prompt.end(), wanted.begin(), wanted.end());
    (void)sink.wait_for_inputs(id, 1);
    const RequestId child = engine->fork(id, {}, sink).value();
    for (const RequestId session : {id, child}) {
      const TokenId input = session == id ? 50 : 60;
      EngineRequest next = part;
      next.prompt.push_back(input);
      std::vector<TokenId> all = wanted;
      const std::vector<TokenId> more = constrained(next, *compiler_).tokens;
      all.insert(all.end(), more.begin(), more.end());
      ASSERT_TRUE(engine->append(session, {input}).has_value());
      ASSERT_TRUE(engine->append(session, {}).has_value());
      EXPECT_EQ(sink.wait(session).tokens, all);
    }
  }
}

TEST_P(StructuredOutputTest, AForkContinuesInTheGrammarStateOfItsParent) {
  std::uint64_t num_forks = 0;
  for (const StructuredOutput& grammar : grammars()) {
    for (std::uint32_t num_known = 0; num_known < 8; ++num_known) {
      Collector sink;
      std::atomic<bool> is_forked = false;
      quire::Setup setup = roomy();
      setup.before_step = [&](const StepPlan& plan) {
        while (!is_forked && !plan.scheduled.empty() && sink.num_tokens(plan.scheduled[0].id) >= num_known) std::this_thread::yield();
      };
      const auto engine = start(GetParam(), std::move(setup));
      EngineRequest request{.prompt = {5, 6, 7, 8, static_cast<TokenId>(num_known)}, .sampling = {}};
      request.sampling.temperature = 0.0F;
      request.sampling.max_tokens = 60;
      request.structured_output = grammar;
      const Expected answer = constrained(request, *compiler_);
      if (answer.tokens.size() < 2 * num_known + 8) continue;
      const RequestId parent = engine->submit(request, sink).value();
      sink.wait_for_tokens(parent, num_known);
      Result<RequestId> forked = engine->fork(parent, {.n = 2}, sink);
      while (!forked.has_value() && forked.error().code == ErrorCode::overloaded) forked = engine->fork(parent, {.n = 2}, sink);
      const RequestId first = forked.value();  // the engine has taken the parent
      is_forked = true;
      expect_equal(sink.wait(parent), answer);
      for (std::uint64_t i = 0; i < 2; ++i) expect_equal(sink.wait({first.value + i}), answer);
      EXPECT_EQ(engine->stop(10.0), 0U);
      num_forks += engine->stats().num_forks;
    }
  }
  EXPECT_GT(num_forks, 30U) << "too few forks";
}

TEST_P(StructuredOutputTest, AGrammarThatCannotBeFollowedEndsOnlyItsRequest) {
  Collector sink;
  const auto engine = start(GetParam(), roomy());
  EngineRequest good{.prompt = {1, 2, 3}, .sampling = {}};
  good.sampling.temperature = 0.0F;
  good.structured_output = grammars()[2];
  EngineRequest bad = good;
  bad.n = 3;
  bad.structured_output = StructuredOutput{.kind = Kind::json_schema, .text = R"({"type":"array","uniqueItems":true})"};
  const RequestId one = engine->submit(good, sink).value();
  const RequestId refused = engine->submit(bad, sink).value();
  const RequestId two = engine->submit(good, sink).value();
  expect_equal(sink.wait(one), constrained(good, *compiler_));
  expect_equal(sink.wait(two), constrained(good, *compiler_));
  for (std::uint64_t i = 0; i < bad.n; ++i) {
    const Collector::Answer answer = sink.wait({refused.value + i});
    EXPECT_EQ(answer.reason, FinishReason::error);
    ASSERT_TRUE(answer.refusal.has_value());
    EXPECT_EQ(answer.refusal->code, ErrorCode::invalid_argument);
    EXPECT_NE(answer.refusal->message.find("uniqueItems"), std::string::npos);
    EXPECT_TRUE(answer.tokens.empty());
  }
}

TEST_P(StructuredOutputTest, RequestsMayEndWhileTheirGrammarIsCompiled) {
  Collector sink;
  const auto engine = start(GetParam(), roomy());
  Random random(17);
  for (int i = 0; i < 200; ++i) {
    EngineRequest request = random_structured(random);
    request.structured_output = StructuredOutput{.kind = Kind::regex, .text = "[a-c]{2,9}" + std::to_string(i)};
    const RequestId id = engine->submit(request, sink).value();
    if (random.below(2) == 0) engine->finish(id, FinishReason::abort);
    const Collector::Answer answer = sink.wait(id);
    EXPECT_EQ(answer.num_finals, 1U);
  }
  EXPECT_EQ(engine->stop(10.0), 0U);
}

TEST_P(StructuredOutputTest, IsRefusedForAPoolingRequest) {
  Collector sink;
  const auto engine = start(GetParam(), roomy());
  EngineRequest request{.prompt = {1}, .sampling = {}};
  request.structured_output = grammars()[0];
  request.pooling = true;
  EXPECT_EQ(engine->submit(request, sink).error().field, "structured_output");
}

INSTANTIATE_TEST_SUITE_P(Modes, StructuredOutputTest, testing::ValuesIn(played_modes()), mode_name);

}  // namespace
}  // namespace quire
