// The engine around the simulated worker, which stops the program when a block does not hold what a plan says.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <semaphore>
#include <thread>

#include "base/random.h"
#include "engine/collector.h"
#include "engine/engine_impl.h"
#include "engine/resolve_options.h"
#include "runtime/worker/simulated_worker.h"

namespace quire {
namespace {

constexpr std::uint32_t kVocab = 200;
constexpr TokenId kEos = 199;
constexpr TokenId kPoison = 198;

ModelInfo simulated_model() {
  ModelInfo model;
  model.name = "simulated";
  model.num_layers = model.num_kv_heads = model.head_dim = 1;
  model.vocab_size = kVocab;
  model.context_length = 256;
  model.tokenizer.eog = {kEos};
  return model;
}

struct Setup {
  EngineOptions options;
  TokenId poison = -1;
  std::function<void(const StepPlan&)> before_step = {};
};

std::unique_ptr<Engine> start(Setup setup) {
  setup.options.cache.num_blocks = setup.options.cache.num_blocks == 0 ? 200 : setup.options.cache.num_blocks;
  const EngineOptions options = resolve_options(setup.options, simulated_model(), 1).value();
  SimulatedWorkerOptions worker{worker_limits(options), options.cache.block_size,    options.cache.num_blocks, kVocab,
                                setup.poison,           std::move(setup.before_step)};
  return make_engine(options, simulated_model(), std::make_unique<SimulatedWorker>(std::move(worker)), std::make_shared<SteadyClock>())
      .value();
}

struct Expected {
  std::vector<TokenId> tokens;
  FinishReason reason = FinishReason::length;
  TokenId stop_token = -1;
};

Expected expected(const EngineRequest& request, TokenId poison = -1) {
  Expected answer;
  std::vector<TokenId> history = request.prompt;
  while (answer.tokens.size() < request.sampling.max_tokens && history.size() < 256) {
    if (history.back() == poison) {
      answer.reason = FinishReason::error;
      return answer;
    }
    history.push_back(simulated_token(history, kVocab));
    answer.tokens.push_back(history.back());
    const bool is_stop = std::ranges::count(request.sampling.stop_token_ids, history.back()) > 0;
    if (answer.tokens.size() >= request.sampling.min_tokens && ((history.back() == kEos && !request.sampling.ignore_eos) || is_stop)) {
      answer.reason = FinishReason::stop;
      answer.stop_token = history.back();
      return answer;
    }
  }
  return answer;
}

EngineRequest make_request(std::uint32_t length, std::uint32_t max_tokens, TokenId first = 1) {
  EngineRequest request;
  for (std::uint32_t i = 0; i < length; ++i) {
    request.prompt.push_back((first + static_cast<TokenId>(i)) % 150);
  }
  request.sampling.max_tokens = max_tokens;
  return request;
}

// Prompts of a few families, so that prefixes are shared.
EngineRequest random_request(Random& random) {
  EngineRequest request;
  const std::uint64_t family = random.below(4);
  const std::uint64_t shared = random.below(50);
  for (std::uint64_t i = 0; i < shared; ++i) {
    request.prompt.push_back(static_cast<TokenId>((family * 31 + i) % 190));
  }
  for (std::uint64_t i = random.below(20) + 1; i > 0; --i) {
    request.prompt.push_back(static_cast<TokenId>(random.below(198)));
  }
  request.sampling.max_tokens = static_cast<std::uint32_t>(random.between(1, 60));
  request.sampling.ignore_eos = random.chance(0.5);
  if (random.chance(0.3)) {
    request.sampling.stop_token_ids = {static_cast<TokenId>(random.below(190))};
  }
  if (random.chance(0.2)) {
    request.sampling.logprobs = 2;
  }
  if (random.chance(0.2)) {
    request.cache_salt = "salt";
  }
  return request;
}

void expect_equal(const Collector::Answer& answer, const Expected& wanted) {
  EXPECT_EQ(answer.tokens, wanted.tokens);
  EXPECT_EQ(answer.reason, wanted.reason);
  EXPECT_EQ(answer.stop_token, wanted.stop_token);
  EXPECT_EQ(answer.num_finals, 1U);
  EXPECT_EQ(answer.num_outputs_after_final, 0U);
}

TEST(Engine, AnswersARequest) {
  const auto engine = start({});
  Collector sink;
  EngineRequest request = make_request(40, 30);
  request.sampling.logprobs = 0;
  const RequestId id = engine->submit(request, sink).value();
  const Collector::Answer answer = sink.wait(id);
  expect_equal(answer, expected(request));
  EXPECT_EQ(answer.logprobs.size(), answer.tokens.size());
  EXPECT_EQ(engine->stop(10.0), 0U);
}

TEST(Engine, RefusesWhatCannotBeServedAndGoesOn) {
  const auto engine = start({});
  Collector sink;
  EXPECT_EQ(engine->submit({}, sink).error().field, "prompt");
  EXPECT_EQ(engine->submit(make_request(256, 1), sink).error().field, "prompt");
  EngineRequest bad = make_request(3, 3);
  bad.sampling.top_p = 2.0F;
  EXPECT_EQ(engine->submit(bad, sink).error().field, "top_p");
  const EngineRequest longest = make_request(255, 100);
  expect_equal(sink.wait(engine->submit(longest, sink).value()), expected(longest));
}

TEST(Engine, ASecondEqualPromptIsFoundInTheCache) {
  const auto engine = start({});
  Collector sink;
  const EngineRequest request = make_request(40, 2);
  EXPECT_EQ(sink.wait(engine->submit(request, sink).value()).num_cached_tokens, 0U);
  EXPECT_EQ(sink.wait(engine->submit(request, sink).value()).num_cached_tokens, 32U);
  EngineRequest salted = request;
  salted.cache_salt = "other tenant";
  EXPECT_EQ(sink.wait(engine->submit(salted, sink).value()).num_cached_tokens, 0U);
}

// Lets steps run one by one.
struct Gate {
  std::counting_semaphore<> permits{0};
  std::atomic<bool> open = false;
  void pass() {
    if (!open) {
      permits.acquire();
    }
  }
  void open_for_good() {
    open = true;
    permits.release();
  }
};

TEST(Engine, FinishFreesTheBlocksAndSaysTheReason) {
  Gate gate;
  const auto engine = start({.options = {}, .before_step = [&](const StepPlan&) { gate.pass(); }});
  Collector sink;
  EngineRequest request = make_request(40, 200);
  request.sampling.ignore_eos = true;
  const RequestId first = engine->submit(request, sink).value();
  const RequestId second = engine->submit(request, sink).value();
  gate.permits.release(3);
  sink.wait_for_tokens(first, 2);
  engine->finish(first, FinishReason::abort);
  engine->finish(first, FinishReason::stop);
  engine->finish(second, FinishReason::stop);
  engine->finish(RequestId{999}, FinishReason::abort);
  gate.open_for_good();
  EXPECT_EQ(sink.wait(first).reason, FinishReason::abort);
  EXPECT_EQ(sink.wait(second).reason, FinishReason::stop);
  EXPECT_EQ(sink.wait(first).num_finals, 1U);
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
  EXPECT_EQ(stats.finished_abort, 1U);
  EXPECT_EQ(stats.finished_stop, 1U);
}

TEST(Engine, TheWaitingQueueIsBounded) {
  Gate gate;
  EngineOptions options;
  options.scheduler.max_num_seqs = 2;
  options.scheduler.max_num_waiting = 3;
  const auto engine = start({.options = options, .before_step = [&](const StepPlan&) { gate.pass(); }});
  Collector sink;
  std::vector<RequestId> ids;
  std::uint32_t num_refused = 0;
  for (int i = 0; i < 20; ++i) {
    const Result<RequestId> id = engine->submit(make_request(5, 3, i), sink);
    if (id.has_value()) {
      ids.push_back(*id);
    } else {
      EXPECT_EQ(id.error().code, ErrorCode::overloaded);
      ++num_refused;
    }
  }
  EXPECT_GE(num_refused, 17U - 2U);
  gate.open_for_good();
  for (const RequestId id : ids) {
    EXPECT_EQ(sink.wait(id).num_finals, 1U);
  }
  EXPECT_TRUE(engine->submit(make_request(5, 3), sink).has_value()) << "room again";
  EXPECT_EQ(engine->stop(10.0), 0U);
}

TEST(Engine, ARequestWithoutADistributionFailsAlone) {
  const auto engine = start({.options = {}, .poison = kPoison});
  Collector sink;
  EngineRequest bad = make_request(5, 10);
  bad.prompt.back() = kPoison;
  const EngineRequest good = make_request(5, 10, 9);
  const RequestId bad_id = engine->submit(bad, sink).value();
  const RequestId good_id = engine->submit(good, sink).value();
  const Collector::Answer failed = sink.wait(bad_id);
  EXPECT_EQ(failed.reason, FinishReason::error);
  EXPECT_NE(failed.error, "");
  EXPECT_TRUE(failed.tokens.empty());
  expect_equal(sink.wait(good_id), expected(good, kPoison));
}

TEST(Engine, StopDrainsThenRefuses) {
  const auto engine = start({});
  Collector sink;
  const EngineRequest request = make_request(30, 50);
  const RequestId id = engine->submit(request, sink).value();
  EXPECT_EQ(engine->stop(30.0), 0U);
  expect_equal(sink.wait(id), expected(request));
  EXPECT_EQ(engine->submit(request, sink).error().code, ErrorCode::shutting_down);
  EXPECT_EQ(engine->stop(0.0), 0U) << "a second stop does nothing";
}

TEST(Engine, StopAbortsWhatIsLeftAndCountsIt) {
  Gate gate;
  const auto engine = start({.options = {}, .before_step = [&](const StepPlan&) { gate.pass(); }});
  Collector sink;
  EngineRequest request = make_request(30, 200);
  request.sampling.ignore_eos = true;
  const RequestId first = engine->submit(request, sink).value();
  const RequestId second = engine->submit(request, sink).value();
  std::atomic<bool> stopped = false;
  std::thread opener([&] {
    Result<RequestId> late = engine->submit(request, sink);
    while (late.has_value() || late.error().code != ErrorCode::shutting_down) {
      late = engine->submit(request, sink);
    }
    while (!stopped) {
      gate.permits.release();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  const std::uint32_t num_aborted = engine->stop(0.0);
  stopped = true;
  opener.join();
  EXPECT_GE(num_aborted, 2U);
  EXPECT_EQ(sink.wait(first).reason, FinishReason::abort);
  EXPECT_EQ(sink.wait(second).reason, FinishReason::abort);
}

TEST(Engine, StatisticsAddUp) {
  const auto engine = start({});
  Collector sink;
  std::uint64_t num_tokens = 0;
  for (int i = 0; i < 10; ++i) {
    num_tokens += sink.wait(engine->submit(make_request(20, 5, i * 7), sink).value()).tokens.size();
  }
  engine->stop(10.0);
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.generation_tokens, num_tokens);
  EXPECT_EQ(stats.prompt_tokens, 200U);
  EXPECT_EQ(stats.finished_length + stats.finished_stop, 10U);
  EXPECT_EQ(stats.time_to_first_token_s.counts.back(), 10U);
  EXPECT_EQ(stats.queue_time_s.counts.back(), 10U);
  EXPECT_EQ(stats.e2e_latency_s.counts.back(), 10U);
  EXPECT_EQ(stats.inter_token_latency_s.counts.back(), num_tokens - 10);
  EXPECT_EQ(stats.step_time_s.counts.back(), stats.num_steps);
}

struct Storm {
  const char* name;
  std::uint32_t num_blocks, block_size, max_num_seqs, max_num_batched_tokens, threshold;
  bool prefix_caching;
  std::uint64_t least_preemptions;
};

class EngineStorm : public testing::TestWithParam<Storm> {};

// One client: submits, waits for or aborts its requests, and checks each answer.
void storm_client(Engine& engine, std::uint64_t seed, std::uint32_t num_requests) {
  Random random(seed);
  Collector sink;
  std::vector<std::pair<RequestId, EngineRequest>> open;
  for (std::uint32_t i = 0; i < num_requests; ++i) {
    EngineRequest request = random_request(random);
    const RequestId id = engine.submit(request, sink).value();
    if (random.chance(0.3)) {
      if (random.chance(0.7)) {
        sink.wait_for_tokens(id, random.below(10));
      }
      engine.finish(id, FinishReason::abort);
      const Collector::Answer answer = sink.wait(id);
      const Expected wanted = expected(request, kPoison);
      EXPECT_LE(answer.tokens.size(), wanted.tokens.size());
      EXPECT_TRUE(std::equal(answer.tokens.begin(), answer.tokens.end(), wanted.tokens.begin()));
      EXPECT_EQ(answer.num_finals, 1U);
    } else {
      open.emplace_back(id, std::move(request));
    }
  }
  for (const auto& [id, request] : open) {
    expect_equal(sink.wait(id), expected(request, kPoison));
  }
}

TEST_P(EngineStorm, ManyClientsGetExactlyTheirAnswers) {
  const Storm& storm = GetParam();
  EngineOptions options;
  options.cache.num_blocks = storm.num_blocks;
  options.cache.block_size = storm.block_size;
  options.cache.enable_prefix_caching = storm.prefix_caching;
  options.scheduler.max_num_seqs = storm.max_num_seqs;
  options.scheduler.max_num_batched_tokens = storm.max_num_batched_tokens;
  options.scheduler.long_prefill_token_threshold = storm.threshold;
  const auto engine = start({.options = options, .poison = kPoison});
  std::vector<std::thread> clients;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    clients.emplace_back([&engine, seed] { storm_client(*engine, seed, 120); });
  }
  std::ranges::for_each(clients, [](std::thread& client) { client.join(); });
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
  EXPECT_EQ(stats.finished_stop + stats.finished_length + stats.finished_abort + stats.finished_error, 960U);
  EXPECT_GE(stats.num_preemptions, storm.least_preemptions);
  RecordProperty("preemptions", static_cast<int>(stats.num_preemptions));
  EXPECT_EQ(engine->stop(10.0), 0U);
}

INSTANTIATE_TEST_SUITE_P(Sizes, EngineStorm,
                         testing::Values(Storm{"roomy", 2000, 16, 64, 2048, 0, true, 0}, Storm{"tiny_cache", 40, 4, 32, 256, 0, true, 200},
                                         Storm{"tiny_cache_no_prefix", 40, 4, 32, 256, 0, false, 200},
                                         Storm{"tiny_steps", 60, 4, 16, 7, 0, true, 0}, Storm{"tiny_chunks", 200, 1, 16, 64, 3, true, 0},
                                         Storm{"one_at_a_time", 100, 8, 1, 64, 0, true, 0}),
                         [](const auto& storm) { return storm.param.name; });

}  // namespace
}  // namespace quire
