// Tests background requests (RequestTags::is_background): they run on the rows, blocks and tokens that other requests leave, and give them
// up when other requests need them.
#include <fmt/format.h>

#include "core/schedule/core_driver.h"
#include "core/schedule/harness.h"
#include "support/rounds.h"

namespace quire::test {
namespace {

CoreConfig with_background(CoreConfig config) {
  config.scheduler.tenant_turns = true;
  return config;
}

void add_tagged(CoreDriver& d, const RequestTags& tags, std::uint64_t id, std::uint32_t num_prompt_tokens, std::uint32_t max_tokens) {
  const Tokens prompt = CoreDriver::prompt(id, num_prompt_tokens);
  NewRequest request = CoreDriver::request(id, prompt, max_tokens);
  request.tags = &tags;
  d.add(request);
}

void add_background(CoreDriver& d, std::uint64_t id, std::uint32_t num_prompt_tokens, std::uint32_t max_tokens) {
  add_tagged(d, {.tenant = "a", .is_background = true}, id, num_prompt_tokens, max_tokens);
}

void add_chat(CoreDriver& d, std::uint64_t id, std::uint32_t num_prompt_tokens, std::uint32_t max_tokens, const char* tenant = "a") {
  add_tagged(d, {.tenant = tenant}, id, num_prompt_tokens, max_tokens);
}

TEST(Background, GivesItsRowToAChatInTheNextStep) {
  for (CoreConfig config : {sync_config(200), async_config(200)}) {
    config.scheduler.max_num_seqs = 2;
    CoreDriver d(with_background(config));
    for (std::uint64_t id = 1; id <= 4; ++id) add_background(d, id, 3, 50);
    d.step();
    d.step();
    EXPECT_EQ(d.core->counters().num_running, 2U);
    add_chat(d, 10, 3, 5);
    d.step();
    EXPECT_EQ(d.view(10).status, RequestStatus::running);
    EXPECT_EQ(d.view(2).status, RequestStatus::preempted) << "the background request that was admitted last";
    add_chat(d, 11, 3, 5, "b");
    d.step();
    EXPECT_EQ(d.view(11).status, RequestStatus::running);
    EXPECT_EQ(d.view(1).status, RequestStatus::preempted) << "also the only one of its kind";
    add_chat(d, 12, 3, 5);
    d.step();
    EXPECT_EQ(d.view(12).status, RequestStatus::waiting) << "the other chats keep their rows";
  }
}

TEST(Background, IsAdmittedAfterAllOthers) {
  CoreConfig config = with_background(sync_config(200));
  config.scheduler.max_num_seqs = 1;
  CoreDriver d(config);
  add_background(d, 1, 3, 1);
  add_chat(d, 2, 3, 1);
  add_background(d, 3, 3, 1);
  add_chat(d, 4, 3, 1, "b");
  for (const std::uint64_t id : {2U, 4U, 1U, 3U}) {
    d.step();
    EXPECT_EQ(d.scheduled(id), 3U) << id;
  }
}

TEST(Background, GivesItsBlocksToAChatThatNeedsMostOfThem) {
  CoreDriver d(with_background(sync_config(25)));  // 24 blocks of 4 tokens
  for (std::uint64_t id = 1; id <= 6; ++id) add_background(d, id, 13, 30);
  d.step();
  add_chat(d, 10, 60, 4);
  d.step();
  EXPECT_GT(d.scheduled(10), 0U);
  EXPECT_EQ(d.core->counters().num_preemptions, 3U) << "4 blocks each are enough for the 15 that the chat needs";
}

TEST(Background, IsPreemptedBeforeAChatThatWasAdmittedLater) {
  CoreDriver d(with_background(sync_config(12)));  // 11 blocks of 4 tokens
  add_background(d, 1, 15, 20);
  d.step();
  add_chat(d, 2, 15, 20);
  while (d.core->counters().num_preemptions == 0) d.step();
  EXPECT_EQ(d.view(1).status, RequestStatus::preempted);
  EXPECT_EQ(d.view(2).status, RequestStatus::running);
}

TEST(Background, GetsTheTokensThatOthersLeave) {
  CoreConfig config = with_background(sync_config(2000));  // 64 tokens per step
  config.scheduler.max_model_len = 2000;
  for (const bool is_limited : {false, true}) {
    CoreDriver d(config);
    if (is_limited) d.core->set_prefill_limits({.beside_decodes = 40, .without_decodes = 64});
    add_background(d, 1, 600, 5);
    d.step();
    EXPECT_EQ(d.scheduled(1), 64U) << "nothing else runs";
    add_chat(d, 2, 30, 1);
    d.step();
    EXPECT_EQ(d.scheduled(2), 30U);
    EXPECT_EQ(d.scheduled(1), 34U);
    add_chat(d, 3, 600, 5);
    d.step();
    EXPECT_GE(d.scheduled(3), 62U);
    EXPECT_LE(d.scheduled(1), 2U) << "the shortest chunk, so that the first running request ends";
  }
}

TEST(Background, ChangesNothingWhenEachRequestIsOfItsKind) {
  for (std::uint64_t seed = 0; seed < rounds_of(30); ++seed) {
    std::string plans[2];
    for (const bool is_background : {false, true}) {
      Random random(seed);
      const CoreConfig config = with_background(small_config(30));
      Harness h(config);
      for (std::uint64_t step = 0, next_id = 0; step < 60; ++step) {
        for (std::uint64_t i = random.chance(0.3) ? random.below(4) : 0; i > 0; --i) {
          auto request = random_request(random, RequestId{next_id++}, config.scheduler.max_model_len);
          request->tags.tenant = std::string(random.below(3), 't');
          request->tags.is_background = is_background;
          request->request.tags = &request->tags;
          h.add(std::move(request));
        }
        for (const ScheduledRequest& s : h.plan().scheduled) plans[is_background] += fmt::format("{}:{} ", s.id.value, s.num_tokens);
        h.apply_oldest();
      }
    }
    EXPECT_EQ(plans[0], plans[1]) << seed;
  }
}

// Every answer is correct and every request finishes. A chat is preempted only when no background request runs.
TEST(Background, YieldsInRandomRuns) {
  std::uint64_t num_background = 0, num_chats = 0;
  for (std::uint64_t seed = 0; seed < rounds_of(80) && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Random random(seed);
    CoreConfig config = with_background(small_config(21 + static_cast<std::uint32_t>(random.below(40))));
    config.scheduler.policy = static_cast<SchedulingPolicy>(random.below(3));
    config.scheduler.async_scheduling = random.chance(0.5);
    config.scheduler.max_num_seqs = static_cast<std::uint32_t>(random.between(1, 8));
    config.scheduler.max_num_batched_tokens = static_cast<std::uint32_t>(random.between(8, 64));
    config.prefix_cache.enable_prefix_caching = random.chance(0.7);
    Harness h(config);
    if (random.chance(0.5)) h.core->set_prefill_limits({.beside_decodes = 20, .without_decodes = 40});
    std::uint64_t next_id = 0;
    for (int step = 0; step < 200; ++step) {
      for (std::uint64_t i = random.chance(0.2) ? random.below(6) : 0; i > 0; --i) {
        auto request = random_request(random, RequestId{next_id++}, config.scheduler.max_model_len);
        request->tags.tenant = std::string(random.below(3), 't');
        request->tags.is_background = random.chance(0.5);
        request->request.tags = &request->tags;
        h.add(std::move(request));
      }
      const StepPlan& plan = h.plan();
      bool runs_background = false, preempts_chat = false;
      for (const ScheduledRequest& s : plan.scheduled) runs_background |= h.core->view(s.id)->tags->is_background;
      for (const RequestId id : plan.preempted) {
        const bool is_background = h.core->view(id)->tags->is_background;
        (is_background ? num_background : num_chats) += 1;
        preempts_chat |= !is_background;
      }
      EXPECT_FALSE(runs_background && preempts_chat);
      h.apply_oldest();
    }
    h.run_to_end();
  }
  EXPECT_GT(num_background, 0U);
  EXPECT_GT(num_chats, 0U);
}

}  // namespace
}  // namespace quire::test
