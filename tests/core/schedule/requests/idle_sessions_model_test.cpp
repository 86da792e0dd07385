// Runs random sessions, their children and plain requests with too few blocks and with a connector. The connector stores blocks when they
// are full and when their request ends, and loads them within a step or while a request waits. Waiting sessions release their blocks,
// continue, are forked and end. The worker detects each wrong entry that it reads, and each answer must equal the answer of the request
// alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/schedule/harness.h"
#include "support/rounds.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

struct IdleMet {
  std::uint64_t gave_back = 0, went_on = 0, ended = 0,
                forked = 0;  // sessions; the last three count sessions that had released their blocks
  std::uint64_t stored_at_end = 0, loaded = 0, preempted = 0;
};

// This tier copies blocks when a transfer begins. Transfers end with the result of the same plan or of a later one.
class CopyingTier final : public QuietConnector {
 public:
  CopyingTier(Random& random, IdleMet& met) : random_(random), met_(met) {}

  void attach(Harness& harness) {
    h_ = &harness;
    harness.move = [this](const StepPlan& plan) { copy(plan, TransferDirection::store); };
    harness.worker.load = [this](const StepPlan& plan) {
      copy(plan, TransferDirection::load);
      end_some(plan);
    };
  }
  [[nodiscard]] bool is_idle() const { return open_.empty() && due_.empty() && decided_.empty(); }

  void bind(const Core& core) override { core_ = &core; }
  ExternalMatch match(const RequestView& request, std::uint32_t num_local_tokens) override {
    num_local_ = num_local_tokens / block_size();
    std::uint32_t end = num_local_;
    while ((end + 1) * block_size() < request.tokens.size() && stored_.contains(name_of(request, end))) ++end;
    load_async_ = random_.chance(0.5);
    return {.num_tokens = (end - num_local_) * block_size(), .load_async = load_async_};
  }
  void allocated(const RequestView& request, GroupBlocks groups, std::uint32_t num_external_tokens) override {
    Moving load{.request = request.id, .direction = TransferDirection::load};
    load.need = load_async_ ? TransferNeed::nothing : TransferNeed::step;
    for (std::uint32_t i = num_local_; i < num_local_ + num_external_tokens / block_size(); ++i)
      load.add(name_of(request, i), groups[0][i], i);
    if (load.blocks.empty()) return;
    due_.push_back(std::move(load));
    ++met_.loaded;
  }
  void planned(const StepPlan& plan) override {
    for (const ScheduledRequest& s : plan.scheduled)
      if (random_.chance(0.5)) decide_store(*core_->view(s.id), core_->blocks(s.id, 0), s.num_computed_tokens + s.num_tokens, decided_);
  }
  bool finished(const RequestView& request, GroupBlocks groups) override {
    EXPECT_LE(request.num_computed_tokens, groups[0].size() * block_size()) << "computed tokens of request " << request.id.value;
    if (request.status != RequestStatus::finished_stopped && request.status != RequestStatus::finished_length) return false;
    // Tokens in flight are not written yet.
    const std::uint32_t num_sure = request.num_computed_tokens - static_cast<std::uint32_t>(request.num_tokens_in_flight);
    if (!decide_store(request, groups[0], std::min<std::uint32_t>(num_sure, groups[0].size() * block_size()), due_)) return false;
    ++met_.stored_at_end;
    return true;
  }
  void plan_transfers(const StepPlan& /*plan*/, TransferList& transfers) override {
    std::erase_if(due_, [&](const Moving& moving) {
      if (moving.direction == TransferDirection::store && !holds_blocks(moving)) {
        for (const std::string& name : moving.names) named_.erase(name);
        return true;
      }
      const auto id = transfers.add(transfer_of(moving.request, moving.blocks, moving.direction, moving.need));
      if (id) open_.emplace(*id, moving);
      return id.has_value();
    });
    // Blocks of this plan are written once it has run.
    std::ranges::move(decided_, std::back_inserter(due_));
    decided_.clear();
  }
  void completed(const TransferCompletion& completion) override {
    const auto over = open_.extract(completion.transfer);
    if (over.mapped().direction == TransferDirection::load) return;
    for (const std::string& name : over.mapped().names) stored_.insert(name);
  }

 private:
  struct Moving {
    RequestId request;
    TransferDirection direction;
    TransferNeed need = TransferNeed::nothing;
    std::vector<std::string> names = {};
    std::vector<BlockId> blocks = {};
    std::vector<std::uint32_t> indices = {};  // indices of the blocks in the request's table
    void add(std::string name, BlockId block, std::uint32_t index) {
      names.push_back(std::move(name));
      blocks.push_back(block);
      indices.push_back(index);
    }
  };

  [[nodiscard]] std::uint32_t block_size() const { return h_->config.block_size; }
  static std::string name_of(const RequestView& request, std::uint32_t index) {
    const auto bytes = request.block_hashes.subspan(std::size_t{index} * 32, 32);
    return {bytes.begin(), bytes.end()};
  }

  [[nodiscard]] bool holds_blocks(const Moving& moving) const {
    const std::span<const BlockId> held = core_->blocks(moving.request, 0);
    for (std::size_t i = 0; i < moving.blocks.size(); ++i)
      if (moving.indices[i] >= held.size() || held[moving.indices[i]] != moving.blocks[i]) return false;
    return true;
  }

  bool decide_store(const RequestView& request, std::span<const BlockId> blocks, std::uint32_t num_tokens, std::vector<Moving>& to) {
    Moving store{.request = request.id, .direction = TransferDirection::store};
    const auto num_named = static_cast<std::uint32_t>(request.block_hashes.size() / 32);
    for (std::uint32_t i = 0; i < std::min(num_named, num_tokens / block_size()); ++i)
      if (named_.insert(name_of(request, i)).second) store.add(name_of(request, i), blocks[i], i);
    if (store.blocks.empty()) return false;
    to.push_back(std::move(store));
    return true;
  }

  void copy(const StepPlan& plan, TransferDirection direction) {
    for (const Transfer& transfer : plan.transfers) {
      if (transfer.direction != direction) continue;
      const Moving& moving = open_.at(transfer.id);
      for (std::size_t i = 0; i < moving.blocks.size(); ++i) {
        const std::span<std::uint64_t> block = h_->worker.block(moving.blocks[i]);
        std::vector<std::uint64_t>& content = contents_[moving.names[i]];
        if (direction == TransferDirection::load)
          std::ranges::copy(content, block.begin());
        else
          content.assign(block.begin(), block.end());
      }
      unfinished_.push_back(transfer.id);
    }
  }

  void end_some(const StepPlan& plan) {
    std::erase_if(unfinished_, [&](TransferId id) {
      const bool is_fence = std::ranges::find(plan.fences, id) != plan.fences.end();
      if (!is_fence && random_.chance(0.3)) return false;
      h_->completions[plan.step].push_back({.transfer = id});
      return true;
    });
  }

  Random& random_;
  IdleMet& met_;
  Harness* h_ = nullptr;
  const Core* core_ = nullptr;
  std::uint32_t num_local_ = 0;
  bool load_async_ = false;
  std::set<std::string> named_, stored_;  // blocks with a planned store; blocks that can be loaded
  std::map<std::string, std::vector<std::uint64_t>> contents_;
  std::vector<Moving> decided_, due_;
  std::map<TransferId, Moving> open_;
  std::vector<TransferId> unfinished_;
};

class RandomSessions {
 public:
  RandomSessions(Harness& h, Random& random, IdleMet& met) : h_(h), random_(random), met_(met) {}

  void begin(RequestId id) {
    auto e = random_request(random_, id, h_.config.scheduler.max_model_len / 2);
    e->salt = 0;
    e->request.cache_salt = {};
    e->request.resumable = true;
    e->request.min_tokens = 0;
    e->request.max_tokens = kMostTokens;
    h_.add(std::move(e));
    answering_.insert(id);
  }

  // A waiting session continues, is forked, or ends. `next_id` is for a child.
  void advance_one(std::uint64_t& next_id) {
    if (waiting_.empty()) return;
    const RequestId id = *std::next(waiting_.begin(), static_cast<std::ptrdiff_t>(random_.below(waiting_.size())));
    const RequestView view = *h_.core->view(id);
    // The engine also waits for a step that runs after the answer.
    if (view.num_tokens_in_flight > 0) return;
    const std::uint32_t max_tokens = h_.alive.at(id)->request.max_tokens;
    const bool gave_back = view.num_blocks == 0;
    const double dice = random_.unit();
    if (dice < 0.3 && waiting_.size() < 8 && view.tokens.size() + 1 + kMostTokens < h_.config.scheduler.max_model_len) {
      met_.forked += gave_back ? 1 : 0;
      fork(id, RequestId{next_id++}, view);
    } else if (dice < 0.6 && view.num_computed_tokens + 8 + max_tokens < h_.config.scheduler.max_model_len) {
      met_.went_on += gave_back ? 1 : 0;
      continue_session_with_input(id, view);
    } else {
      met_.ended += gave_back ? 1 : 0;
      end(id);
    }
  }

  void end_all() {
    while (!waiting_.empty()) end(*waiting_.begin());
  }

  void take(const StepOutcome& outcome) {
    for (const RequestUpdate& update : outcome.updates) {
      if (!update.session_waits) continue;
      answering_.erase(update.id);
      waiting_.insert(update.id);
      Expectation& e = *h_.alive.at(update.id);
      std::vector<TokenId> wanted = h_.worker.expected(e.prompt, 0, e.request.max_tokens - e.num_inherited);
      const auto stop = std::ranges::find_if(
          wanted, [&](TokenId token) { return token == kStopToken || (token == kEosToken && !e.request.eos_ids.empty()); });
      if (stop != wanted.end()) wanted.erase(stop + 1, wanted.end());
      EXPECT_EQ(e.outputs, wanted) << "session " << update.id.value;
      e.outputs.clear();
    }
  }

  void count() {
    for (const RequestId id : waiting_)
      if (h_.core->view(id)->num_blocks == 0) met_.gave_back += known_.insert(id).second ? 1 : 0;
  }

  [[nodiscard]] bool are_over() const { return answering_.empty() && waiting_.empty(); }

 private:
  static constexpr std::uint32_t kMostTokens = 9;  // tokens of an answer

  void continue_session_with_input(RequestId id, const RequestView& view) {
    const std::size_t num_kept = std::min<std::size_t>(view.num_computed_tokens, view.tokens.size());
    std::vector<TokenId> prompt(view.tokens.begin(), view.tokens.begin() + static_cast<std::ptrdiff_t>(num_kept));
    std::vector<TokenId> input(random_.between(1, 7));
    for (TokenId& token : input) token = static_cast<TokenId>(random_.below(kVocabulary));
    prompt.insert(prompt.end(), input.begin(), input.end());
    Expectation& e = *h_.alive.at(id);
    const SessionInput given{
        .tokens = input, .arrival_time = e.request.arrival_time, .eos_ids = e.request.eos_ids, .stop_token_ids = e.request.stop_token_ids};
    ASSERT_TRUE(h_.core->continue_session(id, &given, {.now = h_.now}).has_value());
    h_.core->check_invariants();
    EXPECT_TRUE(std::ranges::equal(h_.core->view(id)->tokens, prompt)) << "session " << id.value;
    e.prompt = std::move(prompt);
    e.num_inherited = 0;
    waiting_.erase(id);
    known_.erase(id);
    answering_.insert(id);
  }

  // Forks a child that also waits, or one that continues with a separate token.
  void fork(RequestId parent, RequestId child, const RequestView& view) {
    const bool waits = random_.chance(0.5);
    ForkRequest given{.id = child, .arrival_time = static_cast<double>(child.value), .resumable = true, .waits_for_input = waits};
    if (!waits) {
      given.next_token = static_cast<TokenId>(random_.below(kVocabulary));
      given.max_tokens = static_cast<std::uint32_t>(view.tokens.size()) + 1 - view.num_prompt_tokens + kMostTokens;
    }
    ASSERT_TRUE(h_.fork(parent, given, 0).has_value());
    (waits ? waiting_ : answering_).insert(child);
  }

  void end(RequestId id) {
    EXPECT_NE(h_.core->finish(id, RequestStatus::finished_stopped, {.now = h_.now}), FinishEffect::unknown);
    h_.alive.erase(id);
    h_.core->check_invariants();
    waiting_.erase(id);
    known_.erase(id);
  }

  Harness& h_;
  Random& random_;
  IdleMet& met_;
  std::set<RequestId> answering_, waiting_;
  std::set<RequestId> known_;  // waiting sessions that were counted as having released their blocks
};

CoreConfig random_idle_config(Random& random) {
  CoreConfig config = small_config(21 + static_cast<std::uint32_t>(random.below(25)));
  config.scheduler.policy = static_cast<SchedulingPolicy>(random.below(3));
  config.scheduler.async_scheduling = random.chance(0.5);
  config.limits.max_outstanding_plans = config.scheduler.async_scheduling ? 2 : 1;
  config.scheduler.max_num_batched_tokens = random.chance(0.5) ? 40 : 13;
  config.scheduler.reserve_full_isl = random.chance(0.5);
  config.prefix_cache.enable_prefix_caching = true;
  config.fixes = engine_fixes(false);
  return config;
}

void run_idle(std::uint64_t seed, IdleMet& met) {
  Random random(seed);
  const CoreConfig config = random_idle_config(random);
  CopyingTier tier(random, met);
  Harness h(config, {.connector = &tier});
  tier.attach(h);
  RandomSessions sessions(h, random, met);
  const auto plan = [&] {
    met.preempted += h.plan().preempted.size();
    sessions.count();
  };
  std::uint64_t next_id = 0;
  for (int event = 0; event < 500; ++event) {
    const double dice = random.unit();
    if (dice < 0.05) {
      auto plain = random_request(random, RequestId{next_id++}, config.scheduler.max_model_len);
      plain->salt = 0;
      plain->request.cache_salt = {};
      h.add(std::move(plain));
    } else if (dice < 0.10) {
      sessions.begin(RequestId{next_id++});
    } else if (dice < 0.2) {
      sessions.advance_one(next_id);
    } else if (dice < 0.65 && h.results.size() < config.limits.max_outstanding_plans) {
      plan();
    } else if (!h.results.empty()) {
      sessions.take(h.apply_oldest());
    }
    ASSERT_FALSE(testing::Test::HasFailure()) << "event " << event;
  }
  for (int left = 20000; h.core->has_work() || !h.results.empty() || !sessions.are_over() || !tier.is_idle(); --left) {
    ASSERT_GT(left, 0) << "no progress";
    if (h.results.empty()) plan();
    sessions.take(h.apply_oldest());
    sessions.end_all();
    ASSERT_FALSE(testing::Test::HasFailure());
  }
  EXPECT_TRUE(h.alive.empty());
  EXPECT_TRUE(h.core->all_blocks_free());
}

TEST(IdleSessionsModel, GetTheirAnswersWithAConnector) {
  IdleMet met;
  for (std::uint64_t seed = 0; seed < rounds_of(100); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    run_idle(seed, met);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(met.gave_back, rounds_of(1000)) << "too few sessions released their blocks";
  EXPECT_GT(met.went_on, rounds_of(400));
  EXPECT_GT(met.ended, rounds_of(400));
  EXPECT_GT(met.forked, rounds_of(300));
  EXPECT_GT(met.stored_at_end, rounds_of(100));
  EXPECT_GT(met.loaded, rounds_of(2000));
  EXPECT_GT(met.preempted, rounds_of(1500));
}

}  // namespace
}  // namespace quire::test
