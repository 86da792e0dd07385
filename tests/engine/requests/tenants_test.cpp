// Tenants in one engine: no tenant waits for another tenant's requests, and a probe reports no blocks of another tenant.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/simulated_engine.h"

namespace quire {
namespace {

constexpr std::uint32_t kRows = 16;
constexpr std::uint64_t kMany = 9 * 128;  // answers of the first tenant

// Records in which step a request was admitted, and how later tenants share the rows with the first one.
class Plans {
 public:
  void note(const StepPlan& plan) {
    const std::lock_guard lock(mutex_);
    ++num_steps_;
    for (const AdmittedRequest& admitted : plan.admitted) admitted_.try_emplace(admitted.id, num_steps_);
    const auto num_others =
        static_cast<std::uint32_t>(std::ranges::count_if(plan.scheduled, [](const auto& one) { return one.id.value >= kMany; }));
    if (num_others < kRows / 2) return;
    ++num_shared_;
    most_beside_ = std::max(most_beside_, static_cast<std::uint32_t>(plan.scheduled.size()) - num_others);
  }
  std::uint32_t num_steps() {
    const std::lock_guard lock(mutex_);
    return num_steps_;
  }
  // Returns 0 while the request is not admitted.
  std::uint32_t admitted_in(RequestId id) {
    const std::lock_guard lock(mutex_);
    const auto found = admitted_.find(id);
    return found == admitted_.end() ? 0 : found->second;
  }
  // Returns the number of steps in which other tenants had half of the rows, and the most rows of the first tenant in such a step.
  std::pair<std::uint32_t, std::uint32_t> shared() {
    const std::lock_guard lock(mutex_);
    return {num_shared_, most_beside_};
  }

 private:
  std::mutex mutex_;
  std::uint32_t num_steps_ = 0;
  std::map<RequestId, std::uint32_t> admitted_;
  std::uint32_t num_shared_ = 0, most_beside_ = 0;
};

EngineRequest request_of(const char* tenant, std::uint32_t length, std::uint32_t max_tokens, std::uint32_t n = 1, TokenId first = 1) {
  EngineRequest request = make_request(length, max_tokens, first);
  request.sampling.ignore_eos = true;
  request.tags.tenant = tenant;
  request.n = n;
  return request;
}

class TenantsTest : public testing::TestWithParam<Mode> {};

INSTANTIATE_TEST_SUITE_P(Modes, TenantsTest, testing::ValuesIn(played_modes()), mode_name);

// Hundreds of answers of one tenant run and wait when another tenant comes. It is admitted within two steps and gets half of the tokens.
TEST_P(TenantsTest, HundredsOfAnswersDoNotKeepAnotherTenantWaiting) {
  EngineOptions options;
  options.cache.num_blocks = 400;
  options.scheduler.max_num_seqs = kRows;
  options.scheduler.max_num_waiting = 2000;
  options.scheduler.tenant_turns = true;
  Gate gate;
  Plans plans;
  const auto engine = start(GetParam(), {.options = options, .before_step = [&](const StepPlan& plan) {
                                           plans.note(plan);
                                           gate.pass();
                                         }});
  Collector sink;
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(engine->submit(request_of("many", 20, 200, 128), sink).has_value());
  gate.permits.release(30);
  while (plans.num_steps() < 31) std::this_thread::yield();
  const std::uint32_t step = plans.num_steps();
  constexpr std::uint32_t kOthers = 24, kTokens = 40;
  std::vector<RequestId> others;
  for (std::uint32_t i = 0; i < kOthers; ++i)
    others.push_back(engine->submit(request_of("one", 5, kTokens, 1, static_cast<TokenId>(3 * i)), sink).value());
  gate.open_for_good();
  for (const RequestId id : others) (void)sink.wait(id);
  EXPECT_LE(plans.admitted_in(others.front()), step + 2);
  for (std::uint32_t i = 0; i < 8; ++i)
    EXPECT_LE(plans.admitted_in(others[i]), step + 3) << "the other tenant gets half of the rows immediately";
  EXPECT_GT(plans.shared().first, kTokens / 4);
  EXPECT_LE(plans.shared().second, kRows / 2);
  engine->stop(0.0);
  EXPECT_EQ(engine->stats().num_free_blocks, engine->stats().num_blocks);
}

TEST_P(TenantsTest, LimitsATenantToItsShareOfTheQueue) {
  EngineOptions options;
  options.scheduler.max_num_waiting = 40;
  options.max_tenant_waiting = 20;
  Gate gate;
  const auto engine = start(GetParam(), {.options = options, .before_step = [&](const StepPlan&) { gate.pass(); }});
  Collector sink;
  ASSERT_TRUE(engine->submit(request_of("a", 20, 5, 20), sink).has_value());
  EXPECT_EQ(engine->submit(request_of("a", 20, 5, 20), sink).error().code, ErrorCode::overloaded);
  EXPECT_TRUE(engine->submit(request_of("b", 20, 5, 20), sink).has_value());
  EXPECT_EQ(engine->submit(request_of("b", 20, 5, 21), sink).error().field, "n");
  gate.open_for_good();
  engine->stop(10.0);
}

CacheProbe probe(Engine& engine, EngineRequest request, bool own) {
  request.probes_tenant_blocks = own;
  std::promise<Result<EngineProbe>> answer;
  engine.probe(std::move(request), [&](Result<EngineProbe> found) { answer.set_value(std::move(found)); });
  return answer.get_future().get().value().cache;
}

// One tenant stores a prompt. The probe of another tenant with the same prefix must report the same as if that prompt were not stored.
TEST(TenantProbes, ReportOnlyTheTenantsOwnBlocks) {
  EngineOptions options;
  options.cache.block_size = 4;
  const auto engine = start(kModes[1], {.options = options});
  Collector sink;
  const EngineRequest document = request_of("owner", 41, 1);
  (void)sink.wait(engine->submit(document, sink).value());
  for (std::uint32_t num_shared = 0; num_shared <= 40; ++num_shared) {
    EngineRequest guess = document;
    guess.tags.tenant = "other";
    for (std::uint32_t i = num_shared; i < 41; ++i) guess.prompt[i] = 170;
    EXPECT_EQ(probe(*engine, guess, true).num_local_tokens, 0U) << num_shared;
    EXPECT_EQ(probe(*engine, guess, false).num_local_tokens, num_shared / 4 * 4) << num_shared;
  }
  EXPECT_EQ(probe(*engine, document, true).num_local_tokens, 40U);
  EngineRequest asked = document;
  asked.tags.tenant = "other";
  asked.prompt.resize(21);
  (void)sink.wait(engine->submit(asked, sink).value());
  asked.prompt = document.prompt;
  EXPECT_EQ(probe(*engine, asked, true).num_local_tokens, 20U) << "blocks the tenant has used count, whichever tenant computed them";
  engine->stop(10.0);
}

}  // namespace
}  // namespace quire
