// Compares the explainer with a model that keeps everything that was ever stored, over random requests. The model reads only the pool
// before and after each call of the core, and no events. The explainer's causes and sums must match the model's.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/schedule/harness.h"
#include "quire/lab/explain.h"
#include "support/rounds.h"

namespace quire::test {
namespace {

using Name = std::vector<std::uint8_t>;

struct Pool {
  std::map<Name, std::set<std::uint32_t>> holders;  // blocks by hash
  std::map<std::uint32_t, std::vector<RequestId>> users;

  static Pool of(const Core& core) {
    CoreSnapshot snapshot;
    core.snapshot(snapshot);
    Pool pool;
    for (std::uint32_t i = 0; i < snapshot.blocks.size(); ++i)
      if (const Name& key = snapshot.blocks[i].key; !key.empty()) pool.holders[Name(key.begin(), key.end() - 4)].insert(i);
    for (const CoreSnapshot::Request& request : snapshot.requests)
      for (const BlockId block : request.blocks.at(0)) pool.users[block.value].push_back(request.id);
    return pool;
  }
  [[nodiscard]] bool has(const Name& name) const { return holders.contains(name); }
};

struct Loss {
  MissCause cause;
  std::set<RequestId> by;  // requests that may have taken the block; empty if that is not visible
};

struct Met {
  std::map<MissCause, std::uint64_t> tokens;
  std::uint64_t requests = 0, preemptions = 0, named_takers = 0, waited = 0;
};

class Oracle {
 public:
  Oracle(std::uint64_t seed, Met& met) : random_(seed), met_(met) {
    CoreConfig config = small_config(static_cast<std::uint32_t>(random_.between(24, 64)));
    config.scheduler.async_scheduling = random_.chance(0.5);
    config.limits.max_outstanding_plans = config.scheduler.async_scheduling ? 2 : 1;
    config.scheduler.policy = random_.chance(0.3) ? SchedulingPolicy::priority : SchedulingPolicy::fcfs;
    config.scheduler.max_num_seqs = static_cast<std::uint32_t>(random_.between(1, 8));
    config.report.log_stats = true;
    explainer_ = std::make_unique<Explainer>(ExplainOptions::of(config, 100000));
    harness_ = std::make_unique<Harness>(config, CoreSeams{.events = explainer_.get()});
    explainer_->follow(*harness_->core);
  }

  void run(int num_calls) {
    for (int i = 0; i < num_calls && !testing::Test::HasFailure(); ++i) one_call();
    while (!harness_->results.empty()) observed(MissCause::forgotten, [&] { harness_->apply_oldest(); });
    met_.preemptions += harness_->core->counters().num_preemptions;
    check_sums();
  }

 private:
  void one_call() {
    harness_->now += 0.25 * static_cast<double>(random_.below(8));
    const std::uint64_t choice = random_.below(100);
    if (choice < 25) {
      const RequestId id{next_id_++};
      queued_s_[id] = harness_->now;
      auto request = random_request(random_, id, harness_->config.scheduler.max_model_len);
      // Some prompts repeat the previous one exactly.
      if (!last_prompt_.empty() && random_.chance(0.2)) request->prompt = last_prompt_;
      last_prompt_ = request->prompt;
      request->request.prompt = request->prompt;
      const auto room = harness_->config.scheduler.max_model_len - static_cast<std::uint32_t>(request->prompt.size());
      request->request.max_tokens = std::min(request->request.max_tokens, room);
      request->request.min_tokens = std::min(request->request.min_tokens, request->request.max_tokens);
      observed(MissCause::forgotten, [&] { harness_->add(std::move(request)); });
    } else if (choice < 28 && !harness_->alive.empty()) {
      const RequestId id = harness_->alive.begin()->first;
      observed(MissCause::forgotten, [&] { harness_->finish(id); });
    } else if (choice < 31) {
      observed(MissCause::reset, [&] { (void)harness_->core->reset_prefix_cache(false, false, {.now = harness_->now}); });
    } else if (harness_->results.size() == harness_->config.limits.max_outstanding_plans) {
      observed(MissCause::forgotten, [&] { harness_->apply_oldest(); });
    } else {
      plan();
    }
  }

  template <class Call>
  Pool observed(MissCause cause, Call call) {
    Pool before = Pool::of(*harness_->core);
    call();
    const Pool after = Pool::of(*harness_->core);
    for (const auto& [name, blocks] : before.holders) {
      ever_stored_.insert(name);
      if (after.has(name)) continue;
      Loss loss{.cause = cause, .by = {}};
      for (const std::uint32_t block : blocks)
        if (const auto users = after.users.find(block); users != after.users.end())
          loss.by.insert(users->second.begin(), users->second.end());
      // A request may take a block and lose it again in the same call.
      if (!loss.by.empty()) loss.by.insert(gave_back_.begin(), gave_back_.end());
      lost_[name] = loss;
    }
    gave_back_.clear();
    for (const auto& [name, blocks] : after.holders) ever_stored_.insert(name);
    return before;
  }

  void plan() {
    std::set<RequestId> fresh;
    const std::set<Name> stored_before = ever_stored_;
    const std::map<Name, Loss> lost_before = lost_;
    const Pool before = observed(MissCause::evicted, [&] {
      const StepPlan& plan = harness_->plan();
      for (const AdmittedRequest& admitted : plan.admitted)
        if (seen_.insert(admitted.id).second) fresh.insert(admitted.id);
      gave_back_.assign(plan.preempted.begin(), plan.preempted.end());
    });
    const Pool after = Pool::of(*harness_->core);
    for (const RequestId id : fresh) check(id, before, after, stored_before, lost_before);
  }

  void check(RequestId id, const Pool& before, const Pool& after, const std::set<Name>& stored_before,
             const std::map<Name, Loss>& lost_before) {
    const RequestExplanation facts = explainer_->explain(id).value();
    const RequestView view = harness_->core->view(id).value();
    ++met_.requests;
    ASSERT_EQ(facts.num_cached + facts.num_missed, view.tokens.size());
    ASSERT_EQ(facts.num_cached, view.num_cached_tokens);
    std::uint32_t covered = facts.num_cached;
    std::map<MissCause, std::uint32_t> sums;
    for (const MissFact& miss : facts.misses) {
      ASSERT_EQ(miss.first_token, covered) << "causes cover consecutive tokens";
      covered += miss.num_tokens;
      sums[miss.cause] += miss.num_tokens;
      for (std::uint32_t token = miss.first_token; token < covered; token += 4) {
        if (token + 4 > view.tokens.size()) {
          EXPECT_EQ(miss.cause, MissCause::partial_block);
          continue;
        }
        const std::uint8_t* bytes = &view.block_hashes[std::size_t{token} / 4 * 32];
        check_block(id, Name(bytes, bytes + 32), miss, token, before, after, stored_before, lost_before);
      }
    }
    EXPECT_EQ(covered, view.tokens.size());
    for (const auto& [cause, tokens] : sums) {
      EXPECT_EQ(tokens, facts.missed.at(static_cast<std::size_t>(cause)));
      met_.tokens[cause] += tokens;
    }
    double waited_s = 0.0;
    for (const WaitFact& wait : facts.waits) waited_s += wait.seconds;
    EXPECT_EQ(facts.queued_s, queued_s_.at(id));
    EXPECT_NEAR(waited_s, *facts.admitted_s - facts.queued_s, 1e-9) << "causes cover the whole waiting time";
    met_.waited += waited_s > 0.0 ? 1 : 0;
  }

  void check_block(RequestId id, const Name& name, const MissFact& miss, std::uint32_t token, const Pool& before, const Pool& after,
                   const std::set<Name>& stored_before, const std::map<Name, Loss>& lost_before) {
    const bool says_stored = miss.cause == MissCause::behind_a_miss || miss.cause == MissCause::last_token;
    // Other requests of the same call may have stored or evicted the block before or after this lookup.
    if (before.has(name) != after.has(name) && !says_stored) {
      if (before.has(name)) return;
    }
    if (before.has(name) && after.has(name) && !says_stored) {
      // The block was evicted and stored again within the call.
      EXPECT_EQ(miss.cause, MissCause::evicted) << "request " << id.value << ", token " << token;
      return;
    }
    if (says_stored) {
      EXPECT_TRUE(before.has(name) || after.has(name)) << "request " << id.value << ", token " << token;
      return;
    }
    if (!stored_before.contains(name)) {
      EXPECT_TRUE(miss.cause == MissCause::never_stored || miss.cause == MissCause::diverged ||
                  (miss.cause == MissCause::evicted && ever_stored_.contains(name)))
          << "request " << id.value << ", token " << token << " cause " << static_cast<int>(miss.cause);
      return;
    }
    const auto loss = lost_before.find(name);
    ASSERT_NE(loss, lost_before.end()) << "the block was stored and is no longer cached";
    EXPECT_EQ(miss.cause, loss->second.cause) << "request " << id.value << ", token " << token;
    if (miss.cause != MissCause::evicted || loss->second.by.empty() || token != miss.first_token) return;
    EXPECT_TRUE(loss->second.by.contains(miss.by)) << "request " << id.value << ", token " << token << " by " << miss.by.value;
    ++met_.named_takers;
  }

  void check_sums() {
    const ExplainTotals& totals = explainer_->totals();
    std::uint64_t num_preemptions = 0;
    for (const std::uint64_t count : totals.preemptions) num_preemptions += count;
    EXPECT_EQ(num_preemptions, harness_->core->counters().num_preemptions) << "each preemption has a cause";
  }

  Random random_;
  Met& met_;
  std::unique_ptr<Explainer> explainer_;
  std::unique_ptr<Harness> harness_;
  std::uint64_t next_id_ = 1;
  std::map<RequestId, double> queued_s_;
  std::vector<TokenId> last_prompt_;
  std::set<RequestId> seen_;
  std::vector<RequestId> gave_back_;  // requests preempted in the observed call
  std::set<Name> ever_stored_;
  std::map<Name, Loss> lost_;
};

TEST(ExplainerModel, NamesTheCausesThatANaiveModelFinds) {
  Met met;
  const std::uint32_t num_runs = static_cast<std::uint32_t>(rounds_of(300));
  for (std::uint32_t seed = 1; seed <= num_runs && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Oracle(seed, met).run(600);
  }
  if (testing::Test::HasFailure()) return;
  RecordProperty("requests", std::to_string(met.requests));
  // The runs must cover enough cases.
  EXPECT_GT(met.requests, num_runs * 34U);
  EXPECT_GT(met.preemptions, num_runs);
  EXPECT_GT(met.named_takers, num_runs);
  EXPECT_GT(met.waited, num_runs * 20U);
  for (const MissCause cause : {MissCause::never_stored, MissCause::diverged, MissCause::evicted, MissCause::reset, MissCause::last_token,
                                MissCause::partial_block})
    EXPECT_GT(met.tokens[cause], num_runs / 4) << static_cast<int>(cause);
}

}  // namespace
}  // namespace quire::test
