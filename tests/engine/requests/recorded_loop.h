#pragma once
// A step loop around the simulated worker, in virtual time. It records the calls to the core, with copies of their arguments, and all
// outputs. Tests check how the parts of the engine that move requests use the core.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/manual_clock.h"
#include "engine/loop/step_loop.h"
#include "engine/simulated_engine.h"
#include "quire/core_call.h"

namespace quire {

struct AddCall {
  RequestId id;
  std::string name;
  std::vector<TokenId> prompt;
  std::int64_t priority = 0;
  double arrival_s = 0.0, now_s = 0.0;
  std::uint32_t max_tokens = 0, min_tokens = 0;
  std::vector<TokenId> eos_ids, stop_token_ids;
  RepetitionDetection repetition;
  bool pooling = false, structured_output = false, resumable = false, skips_prefix_cache = false, loads_nothing = false;
  std::int64_t lora_id = 0;
  std::string lora_name, cache_salt;
  std::vector<std::uint8_t> block_hashes;
  RequestTags tags;
  SamplingParams sampling;
};

struct ForkCall {
  RequestId parent, id;
  std::string name;
  double arrival_s = 0.0, now_s = 0.0;
  std::uint32_t num_tokens = 0;
  std::optional<TokenId> next_token;
  std::optional<std::uint32_t> max_tokens;
  bool resumable = false, waits_for_input = false;
  SamplingParams sampling;
};

struct ContinueCall {
  RequestId id;
  std::vector<TokenId> tokens;
  double arrival_s = 0.0, now_s = 0.0;
  std::uint32_t min_tokens = 0;
  std::vector<TokenId> eos_ids, stop_token_ids;
  RepetitionDetection repetition;
  SamplingParams sampling;
};

struct CallRecord final : public CallSink {
  void on_call(const CoreCall& call) override {
    if (const auto* add = std::get_if<core_call::Add>(&call)) note(*add);
    if (const auto* fork = std::get_if<core_call::Fork>(&call)) note(*fork);
    if (const auto* input = std::get_if<core_call::ContinueSession>(&call)) note(*input);
    if (const auto* finish = std::get_if<core_call::Finish>(&call)) finishes.push_back(*finish);
    if (const auto* forgotten = std::get_if<core_call::ForgetBlocks>(&call)) forgets.push_back(forgotten->id);
  }

  std::vector<AddCall> adds;
  std::vector<ForkCall> forks;
  std::vector<ContinueCall> inputs;
  std::vector<core_call::Finish> finishes;
  std::vector<RequestId> forgets;

 private:
  template <class T>
  static auto copy_of(std::span<const T> items) {
    return std::vector<T>(items.begin(), items.end());
  }
  void note(const core_call::Add& call) {
    const NewRequest& r = call.request;
    adds.push_back({.id = r.id,
                    .name = std::string(r.name),
                    .prompt = copy_of(r.prompt),
                    .priority = r.priority,
                    .arrival_s = r.arrival_time,
                    .now_s = call.input.now,
                    .max_tokens = r.max_tokens,
                    .min_tokens = r.min_tokens,
                    .eos_ids = copy_of(r.eos_ids),
                    .stop_token_ids = copy_of(r.stop_token_ids),
                    .repetition = r.repetition,
                    .pooling = r.pooling,
                    .structured_output = r.structured_output,
                    .resumable = r.resumable,
                    .skips_prefix_cache = r.skip_reading_prefix_cache,
                    .loads_nothing = r.loads_nothing,
                    .lora_id = r.lora_id,
                    .lora_name = std::string(r.lora_name),
                    .cache_salt = std::string(r.cache_salt),
                    .block_hashes = copy_of(r.block_hashes),
                    .tags = *r.tags,
                    .sampling = *r.sampling});
  }
  void note(const core_call::Fork& call) {
    const ForkRequest& r = call.child;
    forks.push_back({.parent = call.parent,
                     .id = r.id,
                     .name = std::string(r.name),
                     .arrival_s = r.arrival_time,
                     .now_s = call.input.now,
                     .num_tokens = r.num_tokens,
                     .next_token = r.next_token,
                     .max_tokens = r.max_tokens,
                     .resumable = r.resumable,
                     .waits_for_input = r.waits_for_input,
                     .sampling = *r.sampling});
  }
  void note(const core_call::ContinueSession& call) {
    const SessionInput& r = call.session_input.value();
    inputs.push_back({.id = call.id,
                      .tokens = copy_of(r.tokens),
                      .arrival_s = r.arrival_time,
                      .now_s = call.input.now,
                      .min_tokens = r.min_tokens,
                      .eos_ids = copy_of(r.eos_ids),
                      .stop_token_ids = copy_of(r.stop_token_ids),
                      .repetition = r.repetition,
                      .sampling = *r.sampling});
  }
};

struct OutputRecord final : public OutputSink {
  void deliver(std::vector<RequestOutput> outputs) override {
    for (RequestOutput& output : outputs) of[output.id].push_back(std::move(output));
  }
  // Returns the last output of a request, which must be its end.
  RequestOutput& end_of(RequestId id) {
    EXPECT_FALSE(of[id].empty()) << id.value;
    if (of[id].empty()) of[id].emplace_back();
    EXPECT_TRUE(of[id].back().finished) << id.value;
    return of[id].back();
  }
  std::map<RequestId, std::vector<RequestOutput>> of;
};

struct RecordedOptions {
  bool async_scheduling = false;
  EngineOptions engine = {};
  TokenId poison = -1;
  std::uint64_t seed = 0;
  Connector* connector = nullptr;
  std::shared_ptr<LiveAdapters> adapters = {};
  std::unique_ptr<WorkerBase> worker = {};  // null: the simulated worker, with steps of one second
};

struct RecordedLoop {
  explicit RecordedLoop(RecordedOptions options = {}) {
    EngineOptions given = options.engine;
    if (given.cache.num_blocks == 0) given.cache.num_blocks = 100;
    given.scheduler.async_scheduling = options.async_scheduling;
    const ResolvedEngine resolved = resolve_options(given, simulated_model(), {1, 0}).value();
    if (options.worker == nullptr)
      options.worker = std::make_unique<SimulatedWorker>(SimulatedWorkerOptions{.limits = resolved.limits,
                                                                                .block_size = resolved.options.cache.block_size,
                                                                                .num_blocks = resolved.options.cache.num_blocks,
                                                                                .vocab_size = kVocab,
                                                                                .poison = options.poison,
                                                                                .clock = clock,
                                                                                .step_time = {.step_s = 1.0}});
    StepLoop::Options looping{.eos_ids = {kEos}, .seed = options.seed, .async_scheduling = options.async_scheduling};
    looping.seams.clock = clock;
    looping.adapters = options.adapters;
    loop = std::make_unique<StepLoop>(Core::create(resolved.core, {.connector = options.connector, .calls = &calls}).value(),
                                      std::move(options.worker), std::move(looping));
  }
  Submission submission(std::uint64_t id, EngineRequest request, double arrival_s = 0.0) {
    return {.id = RequestId{id}, .request = std::move(request), .block_keys = {}, .sink = &sink, .arrival_s = arrival_s};
  }
  void add(std::uint64_t id, EngineRequest request, double arrival_s = 0.0) { loop->add(submission(id, std::move(request), arrival_s)); }
  void step(int count = 1) {
    for (; count > 0; --count) loop->step();
    loop->deliver();
  }
  // Runs all requests to their ends, or until sessions wait for input.
  void run() {
    for (int i = 0; i < 1000 && loop->can_step(); ++i) loop->step();
    loop->deliver();
  }
  // Aborts all open requests, and checks that nothing is held.
  void end() {
    loop->abort_all();
    run();
    loop->check_all_free();
  }

  CallRecord calls;
  OutputRecord sink;
  std::shared_ptr<ManualClock> clock = std::make_shared<ManualClock>();
  std::unique_ptr<StepLoop> loop;
};

// Returns a request whose answer has `max_tokens` tokens.
inline EngineRequest plain_request(std::uint32_t length, std::uint32_t max_tokens, TokenId first = 1) {
  EngineRequest request = make_request(length, max_tokens, first);
  request.sampling.ignore_eos = true;
  return request;
}

}  // namespace quire
