// Runs random rounds with a connector that has some tokens of each request immediately, later or not yet, and with loads that fail.
// Compares the reports and counts of each lookup with a naive model of the connector's own answers.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/random.h"
#include "core/schedule/core_driver.h"
#include "quire/base/events.h"
#include "quire/connector.h"
#include "support/rounds.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

struct LookUpsMet {
  std::uint64_t tried = 0, local = 0, external = 0, async = 0, unknown = 0, unread = 0, unasked = 0, preempted = 0, promoted = 0, lost = 0;
};

struct Counted {
  std::uint64_t requests = 0, queries = 0, hits = 0;
  friend bool operator==(const Counted&, const Counted&) = default;
  void add(std::uint64_t num_queries, std::uint64_t num_hits) {
    ++requests;
    queries += num_queries;
    hits += num_hits;
  }
};

// Counts, indexed by whether the request had been preempted.
struct Book {
  Counted in_cache[2], outside[2];
  std::uint64_t external_queries = 0, external_hits = 0;
};

class LookUpBook final : public QuietConnector, public EventSink {
 public:
  LookUpBook(const CoreConfig& config, std::uint64_t seed, LookUpsMet& met) : config_(config), random_(seed), met_(met) {}

  struct Kind {
    bool skips_cache = false, loads_nothing = false;
  };
  std::map<RequestId, Kind> kinds;
  // Results of the last lookup. Under vLLM 0.32.0 only lookups of requests that were never preempted count.
  std::map<RequestId, std::uint32_t> found;  // number of tokens, local and external
  std::map<RequestId, std::uint32_t> external_tokens;
  std::map<RequestId, std::uint32_t> admitted_with;  // computed tokens at the first admission
  std::set<RequestId> lost;                          // requests that have held a block whose load failed
  std::set<RequestId> loading;
  Book book;
  const Core* core = nullptr;

  ExternalMatch match(const RequestView& request, std::uint32_t num_local_tokens) override {
    EXPECT_FALSE(kinds.at(request.id).loads_nothing) << "the connector is not queried";
    Answer answer{
        .match = {.num_tokens = static_cast<std::uint32_t>(random_.below(request.tokens.size() + 6)), .load_async = random_.chance(0.4)},
        .num_local_tokens = num_local_tokens};
    if (random_.chance(0.4)) answer.match.num_tokens = 0;
    if (random_.chance(0.1)) answer.match.num_tokens = std::nullopt;
    met_.unknown += answer.match.num_tokens ? 0 : 1;
    answers_[request.id] = answer;
    return answer.match;
  }
  void allocated(const RequestView& request, GroupBlocks /*blocks*/, std::uint32_t num_external_tokens) override {
    const auto tried = tried_.find(request.id);
    EXPECT_EQ(num_external_tokens, tried == tried_.end() ? 0U : tried->second.num_external) << "request " << request.id.value;
    if (tried == tried_.end()) {
      ++met_.promoted;
      return;
    }
    const Tried& last = tried->second;
    if (last.load_async) loading.insert(request.id);
    const bool was_preempted = request.num_preemptions > 0;
    if (counts_at_admission()) count_in_cache(request, last);
    if (!last.was_asked) return;
    const std::uint64_t num_queries = request.tokens.size() - last.num_local;
    book.outside[was_preempted ? 1 : 0].add(num_queries, last.num_external);
    book.external_queries += num_queries;
    book.external_hits += last.num_external;
  }
  void planned(const StepPlan& /*plan*/) override { begin_plan(); }

  void on_event(const Event& event) override {
    if (event.what == EventKind::prefix_looked_up) {
      told_in_cache_.add(event.total, event.amount);
      const Kind& kind = kinds.at(event.owner);
      EXPECT_TRUE(config_.prefix_cache.enable_prefix_caching && !kind.skips_cache);
    }
    if (event.what == EventKind::prefix_looked_up && !counts_at_admission()) {
      looked_up_[event.owner] = event.amount;
      EXPECT_EQ(event.total, view(event.owner).tokens.size());
      book.in_cache[view(event.owner).num_preemptions > 0 ? 1 : 0].add(event.total, event.amount);
    }
    if (event.what == EventKind::admission_tried) try_one(event);
    if (event.what == EventKind::admitted) admitted_with.emplace(event.owner, event.amount);
    if (event.what == EventKind::preempted) ++met_.preempted;
  }

  // Checks that the lookups that the core reported equal the counted lookups.
  void expect_told() const { EXPECT_EQ(told_in_cache_, sum(book.in_cache)); }

 private:
  struct Answer {
    ExternalMatch match;
    std::uint32_t num_local_tokens = 0;
  };
  struct Tried {
    std::uint32_t num_local = 0, num_external = 0;
    bool load_async = false, was_asked = false;
  };

  static Counted sum(const Counted (&both)[2]) {
    return {both[0].requests + both[1].requests, both[0].queries + both[1].queries, both[0].hits + both[1].hits};
  }
  [[nodiscard]] bool counts_at_admission() const { return config_.decisions == DecisionProfile::vllm_0_32; }
  [[nodiscard]] RequestView view(RequestId id) const { return core->view(id).value(); }

  void begin_plan() {
    answers_.clear();
    tried_.clear();
    looked_up_.clear();
  }

  void count_in_cache(const RequestView& request, const Tried& tried) {
    if (!config_.prefix_cache.enable_prefix_caching || kinds.at(request.id).skips_cache) return;
    book.in_cache[request.num_preemptions > 0 ? 1 : 0].add(request.tokens.size(), tried.num_local);
  }

  void try_one(const Event& event) {
    ++met_.tried;
    const RequestView request = view(event.owner);
    const Kind& kind = kinds.at(event.owner);
    const auto num_tokens = static_cast<std::uint32_t>(request.tokens.size());
    Tried tried{.num_local = event.amount, .was_asked = !kind.loads_nothing};
    EXPECT_EQ(event.total, num_tokens);
    EXPECT_LT(event.amount, num_tokens);
    EXPECT_EQ(event.amount % config_.block_size, 0U);
    if (!config_.prefix_cache.enable_prefix_caching || kind.skips_cache)
      EXPECT_EQ(event.amount, 0U);
    else if (!counts_at_admission())
      EXPECT_EQ(event.amount, looked_up_.at(event.owner));
    if (tried.was_asked) {
      const Answer& answer = answers_.at(event.owner);
      EXPECT_EQ(event.amount, answer.num_local_tokens);
      const bool unread = counts_at_admission() && kind.skips_cache;
      // One token must be computed, unless the load is asynchronous.
      const std::uint32_t most = num_tokens - event.amount - (answer.match.load_async ? 0 : 1);
      tried.num_external = unread ? 0 : std::min(answer.match.num_tokens.value(), most);
      tried.load_async = answer.match.load_async && tried.num_external > 0;
      met_.unread += unread && answer.match.num_tokens.value_or(1) > 0 ? 1 : 0;
    }
    met_.unasked += tried.was_asked ? 0 : 1;
    EXPECT_EQ(event.external, tried.num_external);
    EXPECT_EQ(event.load_async, tried.load_async);
    met_.local += event.amount > 0 ? 1 : 0;
    met_.external += tried.num_external > 0 ? 1 : 0;
    met_.async += tried.load_async ? 1 : 0;
    tried_[event.owner] = tried;
    if (counts_at_admission() && request.num_preemptions > 0) return;
    found[event.owner] = tried.num_local + tried.num_external;
    external_tokens[event.owner] = tried.num_external;
  }

  const CoreConfig& config_;
  Random random_;
  LookUpsMet& met_;
  // Data of the plan in progress.
  std::map<RequestId, Answer> answers_;
  std::map<RequestId, Tried> tried_;
  std::map<RequestId, std::uint32_t> looked_up_;
  Counted told_in_cache_;
};

CoreConfig random_look_up_config(Random& random) {
  CoreConfig config = sync_config(random.chance(0.5) ? 16 : 24);
  config.decisions = random.chance(0.5) ? DecisionProfile::vllm_0_19 : DecisionProfile::vllm_0_32;
  config.kv_load_failure = KvLoadFailurePolicy::recompute;
  config.scheduler.max_num_seqs = 4;
  config.scheduler.max_num_batched_tokens = random.chance(0.5) ? 64 : 9;
  config.scheduler.max_model_len = 48;
  config.scheduler.reserve_full_isl = random.chance(0.5);
  config.prefix_cache.enable_prefix_caching = random.chance(0.8);
  return config;
}

// Adds a random request. Prompts share prefixes.
void add_random(CoreDriver& d, LookUpBook& book, Random& random, std::uint64_t id) {
  Tokens prompt = CoreDriver::prompt(random.below(2), static_cast<std::uint32_t>(random.below(20)));
  for (std::uint64_t i = random.between(1, 6); i > 0; --i) prompt.push_back(static_cast<TokenId>(3 + random.below(5)));
  NewRequest request = CoreDriver::request(id, prompt, static_cast<std::uint32_t>(random.between(1, 16)));
  request.skip_reading_prefix_cache = random.chance(0.2);
  request.loads_nothing = random.chance(0.2);
  book.kinds[RequestId{id}] = {.skips_cache = request.skip_reading_prefix_cache, .loads_nothing = request.loads_nothing};
  d.add(request);
}

// Compares the counters and statistics with the model since the last outcome.
void expect_counts(const CoreDriver& d, const Outcome& outcome, const Book& book, Book& before) {
  const auto expect = [](const PrefixCacheStats& stats, const Counted(&now)[2], Counted(&then)[2]) {
    EXPECT_EQ((Counted{stats.requests, stats.queries, stats.hits}),
              (Counted{now[0].requests - then[0].requests, now[0].queries - then[0].queries, now[0].hits - then[0].hits}));
    EXPECT_EQ((Counted{stats.preempted_requests, stats.preempted_queries, stats.preempted_hits}),
              (Counted{now[1].requests - then[1].requests, now[1].queries - then[1].queries, now[1].hits - then[1].hits}));
  };
  const CoreCounters counters = d.core->counters();
  EXPECT_EQ(counters.prefix_query_tokens, book.in_cache[0].queries);
  EXPECT_EQ(counters.prefix_hit_tokens, book.in_cache[0].hits);
  EXPECT_EQ(counters.preempted_prefix_query_tokens, book.in_cache[1].queries);
  EXPECT_EQ(counters.preempted_prefix_hit_tokens, book.in_cache[1].hits);
  EXPECT_EQ(counters.external_query_tokens, book.external_queries);
  EXPECT_EQ(counters.external_hit_tokens, book.external_hits);
  if (!outcome.stats) return;
  expect(outcome.stats->prefix_cache, book.in_cache, before.in_cache);
  ASSERT_TRUE(outcome.stats->connector_prefix_cache.has_value());
  expect(*outcome.stats->connector_prefix_cache, book.outside, before.outside);
  before = book;
}

// Applies a result that reports some loads, of which some have failed in one block.
Outcome apply_loads(CoreDriver& d, LookUpBook& book, Random& random, LookUpsMet& met) {
  std::vector<RequestId> received;
  std::vector<BlockId> invalid;
  for (const RequestId id : book.loading) {
    if (!random.chance(0.5)) continue;
    received.push_back(id);
    const auto blocks = d.blocks(id.value);
    if (!random.chance(0.3) || blocks.empty()) continue;
    invalid.push_back(blocks.at(random.below(blocks.size())));
    ++met.lost;
  }
  d.core->visit([&](QueueKind /*kind*/, const RequestView& view) {
    const auto blocks = d.blocks(view.id.value);
    if (std::ranges::find_first_of(blocks, invalid) != blocks.end()) book.lost.insert(view.id);
  });
  for (const RequestId id : received) book.loading.erase(id);
  return d.apply({}, {.step = {}, .has_connector_output = true, .finished_receiving = received, .invalid_blocks = invalid});
}

// Checks the number of cached tokens in each update.
void expect_found(const CoreConfig& config, const LookUpBook& book, const Outcome& outcome) {
  for (const Update& update : outcome.updates) {
    const RequestId id{update.id};
    const bool is_newer = config.decisions == DecisionProfile::vllm_0_32;
    EXPECT_EQ(update.num_cached_tokens, (is_newer ? book.found : book.admitted_with).at(id)) << "request " << update.id;
    // The older rules subtract tokens whose load failed.
    if (is_newer || !book.lost.contains(id))
      EXPECT_EQ(update.num_external_computed_tokens, book.external_tokens.at(id)) << "request " << update.id;
  }
}

// Checks that a request whose load is complete reports its cached tokens while it waits for its turn.
void expect_promoted(const CoreDriver& d, const LookUpBook& book) {
  d.core->visit([&](QueueKind kind, const RequestView& view) {
    if (kind == QueueKind::running || view.status == RequestStatus::waiting_for_remote_kv || book.lost.contains(view.id)) return;
    if (view.num_preemptions == 0 && view.num_computed_tokens > 0)
      EXPECT_EQ(view.num_cached_tokens, view.num_computed_tokens) << "request " << view.id.value;
  });
}

void run_look_ups(std::uint64_t seed, LookUpsMet& met) {
  Random random(seed);
  const CoreConfig config = random_look_up_config(random);
  LookUpBook book(config, seed, met);
  CoreDriver d(config, {.connector = &book, .events = &book});
  book.core = d.core.get();
  Book before;
  std::uint64_t next_id = 0;
  for (int step = 0; step < 200; ++step) {
    if (random.chance(0.5) && d.core->counters().num_unfinished < 10) add_random(d, book, random, next_id++);
    for (const ScheduledRequest& s : d.plan().scheduled)
      if (s.kind != ScheduledKind::running)
        EXPECT_EQ(s.kind, d.view(s.id.value).num_preemptions > 0 ? ScheduledKind::resumed : ScheduledKind::fresh);
    expect_promoted(d, book);
    const Outcome outcome = apply_loads(d, book, random, met);
    expect_counts(d, outcome, book.book, before);
    book.expect_told();
    expect_found(config, book, outcome);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed << ", step " << step;
  }
}

TEST(LookUpModel, ReportsAndCountsWhatEachLookupFinds) {
  LookUpsMet met;
  for (std::uint64_t seed = 0; seed < rounds_of(60); ++seed) {
    run_look_ups(seed, met);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(met.tried, rounds_of(6000)) << "too few lookups";
  EXPECT_GT(met.local, rounds_of(600));
  EXPECT_GT(met.external, rounds_of(600));
  EXPECT_GT(met.async, rounds_of(300));
  EXPECT_GT(met.unknown, rounds_of(300));
  EXPECT_GT(met.unread, rounds_of(60));
  EXPECT_GT(met.unasked, rounds_of(300));
  EXPECT_GT(met.preempted, rounds_of(60));
  EXPECT_GT(met.promoted, rounds_of(300));
  EXPECT_GT(met.lost, rounds_of(60));
}

}  // namespace
}  // namespace quire::test
