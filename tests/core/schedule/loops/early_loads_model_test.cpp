// Runs random rounds with FixOptions::early_loads, small pools and a tier that knows the content of every block. Each request must output
// what it outputs alone, even when loads finish late or never. A naive rule checks which requests may load before their turn.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "core/schedule/harness.h"
#include "core/schedule/moves/naive_fences.h"
#include "quire/base/events.h"
#include "support/decision_record.h"
#include "support/rounds.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

constexpr std::uint32_t kEarlyBlock = 4;  // in tokens

struct EarlyMet {
  std::uint64_t loads = 0, early = 0, failed = 0, given_back = 0, preempted = 0;
};

// The tier holds some or all blocks of each prompt. It loads late and out of order, and some loads always fail.
class KnowingTier final : public QuietConnector, public EventSink {
 public:
  KnowingTier(double late, double failed, std::uint64_t seed, EarlyMet& met) : random_(seed), late_(late), failed_(failed), met_(met) {}
  void attach(Harness& harness) {
    h_ = &harness;
    harness.move = [this](const StepPlan& plan) { move(plan); };
  }

  ExternalMatch match(const RequestView& request, std::uint32_t num_local_tokens) override {
    if (random_.chance(0.1)) return {.num_tokens = std::nullopt, .load_async = false};
    num_local_ = num_local_tokens;
    const std::uint32_t held = static_cast<std::uint32_t>(mix(request.id.value, 5) % (request.num_prompt_tokens / kEarlyBlock + 1));
    return {.num_tokens = std::max(held * kEarlyBlock, num_local_tokens) - num_local_tokens, .load_async = true};
  }
  void allocated(const RequestView& request, GroupBlocks groups, std::uint32_t num_external_tokens) override {
    if (num_external_tokens == 0) return;
    const std::uint32_t first = num_local_ / kEarlyBlock, count = num_external_tokens / kEarlyBlock;
    const auto blocks = groups[0].subspan(first, count);
    wanted_.push_back({request.id, {blocks.begin(), blocks.end()}, entries_of(request, first, count)});
    ++num_loading_[request.id];
  }
  bool finished(const RequestView& request, GroupBlocks /*blocks*/) override {
    std::erase_if(wanted_, [&](const Load& load) { return load.request == request.id; });
    early_.erase(request.id);
    return false;
  }
  void plan_transfers(const StepPlan& /*plan*/, TransferList& transfers) override {
    std::erase_if(wanted_, [&](const Load& load) {
      const auto id = transfers.add(transfer_of(load.request, load.blocks));
      if (id) open_[*id] = load;
      return id.has_value();
    });
  }
  void completed(const TransferCompletion& completion) override { --num_loading_.at(requests_.at(completion.transfer)); }

  void on_event(const Event& event) override {
    if (event.what == EventKind::gave_way) met_.given_back += early_.erase(event.owner);
    if (event.what != EventKind::preempted) return;
    ++met_.preempted;
    std::uint32_t num_blocks = 0;
    h_->core->visit([&](QueueKind kind, const RequestView& view) {
      if (kind != QueueKind::running && early_.contains(view.id) && num_loading_[view.id] == 0) num_blocks += view.num_blocks;
    });
    EXPECT_LT(num_blocks, event.amount) << "blocks loaded early are released before a request is preempted";
  }

 private:
  struct Load {
    RequestId request;
    std::vector<BlockId> blocks;
    std::vector<std::uint64_t> entries;
  };

  static std::vector<std::uint64_t> entries_of(const RequestView& request, std::uint32_t first, std::uint32_t count) {
    std::vector<std::uint64_t> entries;
    std::uint64_t digest = request.cache_salt.size();
    for (std::uint32_t i = 0; i < (first + count) * kEarlyBlock; ++i) {
      digest = mix(digest, static_cast<std::uint64_t>(request.tokens[i]));
      if (i >= first * kEarlyBlock) entries.push_back(mix(digest, 0));
    }
    return entries;
  }

  void move(const StepPlan& plan) {
    for (const ScheduledRequest& s : plan.scheduled) early_.erase(s.id);
    for (const Transfer& transfer : plan.transfers) {
      requests_[transfer.id] = transfer.request;
      ++met_.loads;
    }
    check_room(plan);
    std::vector<TransferId> ids;
    for (const auto& [id, load] : open_) ids.push_back(id);
    for (std::size_t i = ids.size(); i > 0; --i) {
      std::swap(ids[i - 1], ids[random_.below(i)]);
      if (!random_.chance(late_)) end(ids[i - 1], plan.step);
    }
  }

  void end(TransferId id, StepId step) {
    const Load load = std::move(open_.at(id));
    open_.erase(id);
    const bool fails = random_.chance(failed_);
    met_.failed += fails ? 1 : 0;
    for (std::size_t i = 0; i < load.blocks.size(); ++i) {
      const std::span<std::uint64_t> block = h_->worker.block(load.blocks[i]);
      std::copy_n(load.entries.begin() + static_cast<std::ptrdiff_t>(i * kEarlyBlock), kEarlyBlock, block.begin());
      if (fails) std::ranges::fill(block, 0xBAD);
    }
    h_->completions[step].push_back({.transfer = id, .outcome = fails ? TransferOutcome::failed : TransferOutcome::done});
  }

  // A request that loads and stays in `waiting` was not reached by the waiting loop. Its load must leave room for all requests before it,
  // its other blocks, the known tokens of running requests, and an eighth of the pool.
  void check_room(const StepPlan& plan) {
    std::vector<RequestView> waiting, running;
    std::set<RequestId> in_waiting;
    h_->core->visit([&](QueueKind kind, const RequestView& view) {
      (kind == QueueKind::running ? running : waiting).push_back(view);
      if (kind == QueueKind::waiting) in_waiting.insert(view.id);
    });
    if (h_->config.scheduler.policy == SchedulingPolicy::fcfs)
      std::ranges::rotate(waiting, waiting.begin() + static_cast<std::ptrdiff_t>(in_waiting.size()));  // skipped requests come first
    else
      std::ranges::sort(waiting, {}, [](const RequestView& view) { return std::pair(view.priority, view.arrival_time); });
    for (const Transfer& transfer : plan.transfers) {
      if (!in_waiting.contains(transfer.request)) {
        early_.erase(transfer.request);
        continue;
      }
      met_.early += early_.insert(transfer.request).second ? 1 : 0;
      std::uint32_t num_wanted = h_->config.kv.num_blocks / 8;
      for (const RequestView& view : running) num_wanted += num_missing(view);
      for (const RequestView& view : waiting) {
        num_wanted += num_missing(view);
        if (view.id == transfer.request) break;
      }
      EXPECT_GE(h_->core->counters().num_free_blocks, num_wanted) << "request " << transfer.request.value;
    }
  }

  static std::uint32_t num_missing(const RequestView& view) {
    const auto num_blocks = static_cast<std::uint32_t>((view.tokens.size() + kEarlyBlock - 1) / kEarlyBlock);
    return std::max(num_blocks, view.num_blocks) - view.num_blocks;
  }

  Random random_;
  double late_, failed_;
  EarlyMet& met_;
  Harness* h_ = nullptr;
  std::uint32_t num_local_ = 0;
  std::vector<Load> wanted_;
  std::map<TransferId, Load> open_;
  std::map<TransferId, RequestId> requests_;
  std::map<RequestId, std::uint32_t> num_loading_;
  std::set<RequestId> early_;  // requests that loaded early and have not run since
};

CoreConfig random_early_config(Random& random) {
  CoreConfig config = small_config(random.chance(0.7) ? 24 : 50);
  config.scheduler.max_num_seqs = static_cast<std::uint32_t>(random.between(2, 4));
  config.scheduler.max_num_batched_tokens = random.chance(0.5) ? 32 : 9;
  config.scheduler.async_scheduling = random.chance(0.7);
  config.limits.max_outstanding_plans = config.scheduler.async_scheduling ? 2 : 1;
  config.scheduler.reserve_full_isl = random.chance(0.5);
  config.prefix_cache.enable_prefix_caching = random.chance(0.8);
  config.kv_load_failure = KvLoadFailurePolicy::recompute;
  config.fixes.forget_unwritten_blocks = true;
  config.fixes.discard_only_in_flight = true;
  config.fixes.loaded_give_way = true;
  config.fixes.early_loads = true;
  if (random.chance(0.3)) config.scheduler.policy = SchedulingPolicy::priority;
  if (random.chance(0.3)) config.pressure = {.admission_watermark = 0.1, .pressure_high = 0.9, .pressure_low = 0.6};
  return config;
}

// Returns a digest of everything the core reported.
std::uint64_t run_early(std::uint64_t seed, double failed, EarlyMet& met) {
  Random random(seed);
  const CoreConfig config = random_early_config(random);
  KnowingTier tier(random.unit() * 0.9, failed, seed, met);
  Harness h(config, {.connector = &tier, .events = &tier});
  tier.attach(h);
  NaiveFences fences(h);
  h.move = [&, move = h.move](const StepPlan& plan) {
    fences.check(plan);
    move(plan);
    fences.note_ends();
  };
  std::uint64_t next_id = 0;
  for (int event = 0; event < 500; ++event) {
    const double dice = random.unit();
    if (dice < 0.15 && h.alive.size() < 20)
      h.add(random_request(random, RequestId{next_id++}, config.scheduler.max_model_len));
    else if (dice < 0.17 && !h.alive.empty())
      h.finish(std::next(h.alive.begin(), static_cast<std::ptrdiff_t>(random.below(h.alive.size())))->first);
    else if (dice < 0.65 && h.results.size() < config.limits.max_outstanding_plans)
      h.plan();
    else if (!h.results.empty())
      h.apply_oldest();
    EXPECT_FALSE(testing::Test::HasFailure()) << "seed " << seed << ", event " << event;
    if (testing::Test::HasFailure()) return 0;
  }
  while (!h.results.empty()) h.apply_oldest();
  for (int left = 20000; h.core->has_work() || h.core->counters().num_awaiting_transfers > 0; --left) {
    EXPECT_GT(left, 0) << "no progress";
    h.step();
    if (testing::Test::HasFailure()) return 0;
  }
  h.run_to_end();
  return h.told.digest();
}

TEST(EarlyLoadsModel, GivesEachRequestTheOutputThatItHasAlone) {
  DecisionRecord record("tests/golden/decisions_early_loads.txt");
  EarlyMet met;
  for (std::uint64_t seed = 0; seed < rounds_of(300); ++seed) {
    const std::uint64_t digest = run_early(seed, seed % 3 == 0 ? 0.3 : 0.0, met);
    if (seed < 100) record.expect(digest);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(met.loads, rounds_of(5000)) << "too few loads";
  EXPECT_GT(met.early, rounds_of(500));
  EXPECT_GT(met.failed, rounds_of(500));
  EXPECT_GT(met.given_back, rounds_of(20));
  EXPECT_GT(met.preempted, rounds_of(1000));
}

}  // namespace
}  // namespace quire::test
