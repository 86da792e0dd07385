#pragma once
// NaiveScheduler implements the scheduling rules of vLLM V1 in their simplest form, over the naive KV manager. It has no slots and no
// deltas, and it does not reuse memory. It supports full attention and all policies, with or without tokens in flight.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/schedule/naive_kv.h"
#include "quire/core.h"

namespace quire::test {

class NaiveScheduler {
 public:
  struct Row {
    std::uint64_t id = 0;
    std::size_t num_computed = 0;
    std::size_t num_tokens = 0;
    bool samples = false;
    std::vector<std::uint32_t> table;
    std::vector<NaiveKv::Copy> copies{};
    friend bool operator==(const Row&, const Row&) = default;
  };
  struct Step {
    std::vector<Row> rows;
    std::vector<std::uint64_t> admitted, preempted;
  };

  explicit NaiveScheduler(const CoreConfig& config)
      : config_(config), kv_(config.kv.num_blocks, config.block_size, config.prefix_cache.enable_prefix_caching) {}

  void add(const NewRequest& given, double now = 0.0) {
    auto r = std::make_shared<Request>();
    r->id = given.id.value;
    r->priority = given.priority;
    r->arrival = given.arrival_time;
    r->tokens.assign(given.prompt.begin(), given.prompt.end());
    r->num_prompt = given.prompt.size();
    r->max_tokens = std::min<std::size_t>(given.max_tokens, config_.scheduler.max_model_len - r->num_prompt);
    r->min_tokens = given.min_tokens;
    r->stops.insert(given.stop_token_ids.begin(), given.stop_token_ids.end());
    r->stops.insert(given.eos_ids.begin(), given.eos_ids.end());
    r->salt = given.cache_salt;
    r->entered = config_.continuum.jobless_in_order ? now : kNever;
    if (given.tags != nullptr) r->tags = *given.tags;
    if (!r->tags.job.empty()) arrive(r->tags.job, now);
    waiting_.push_back(r);
    all_[r->id] = r;
  }

  // Forks a request as the core does.
  void fork(std::uint64_t parent, const ForkRequest& given) {
    const Request& from = *all_.at(parent);
    auto r = std::make_shared<Request>(from);
    r->id = given.id.value;
    r->arrival = given.arrival_time;
    if (given.num_tokens > 0) r->tokens.resize(given.num_tokens);
    if (given.next_token) r->tokens.push_back(*given.next_token);
    r->max_tokens = std::min<std::size_t>(given.max_tokens.value_or(static_cast<std::uint32_t>(from.max_tokens)),
                                          config_.scheduler.max_model_len - r->num_prompt);
    r->min_tokens = std::min(from.min_tokens, r->max_tokens);
    r->num_computed = std::min(from.num_computed, r->tokens.size() - 1);
    r->placeholders = 0;
    r->kv = kv_.fork(from.kv, r->num_computed);
    waiting_.push_front(r);
    sharing_.push_back(r);
    all_[r->id] = r;
  }

  Step schedule(double now = 0.0) {
    Step step;
    while (end_pin([now](const Pin& pin) { return now >= pin.expiry; })) {
    }
    std::size_t budget = config_.scheduler.max_num_batched_tokens;
    schedule_running(step, budget);
    while (step.preempted.empty() && !waiting_.empty() && budget > 0 && running_.size() < config_.scheduler.max_num_seqs)
      if (!admit(step, budget)) break;
    for (const Row& row : step.rows) {
      Request& r = *all_.at(row.id);
      r.num_computed += row.num_tokens;
      r.placeholders += config_.scheduler.async_scheduling && row.samples ? 1 : 0;
    }
    return step;
  }

  // Returns whether the request is done.
  bool take_token(std::uint64_t id, TokenId token, double now = 0.0) {
    const auto r = all_.at(id);
    r->tokens.push_back(token);
    if (config_.scheduler.async_scheduling) {
      --r->placeholders;
      if (std::ranges::find(running_, r) != running_.end()) kv_.cache(r->kv, r->num_computed - r->placeholders, r->tokens, r->salt);
    }
    const std::size_t num_outputs = r->tokens.size() - r->num_prompt;
    const bool done = num_outputs >= r->min_tokens &&
                      (r->stops.contains(token) || r->tokens.size() >= config_.scheduler.max_model_len || num_outputs >= r->max_tokens);
    if (done) finish(id, RequestStatus::finished_stopped, now);
    return done;
  }

  void finish(std::uint64_t id, RequestStatus status, double now = 0.0) {
    const auto r = all_.at(id);
    if (!stays(r, status, now)) kv_.free(r->kv);
    std::erase(sharing_, r);
    std::erase(running_, r);
    std::erase(waiting_, r);
    all_.erase(id);
  }

  [[nodiscard]] bool has_work() const { return !all_.empty(); }
  [[nodiscard]] bool knows(std::uint64_t id) const { return all_.contains(id); }
  [[nodiscard]] std::size_t num_pinned() const { return pins_.size(); }
  [[nodiscard]] std::size_t num_free_blocks() const { return kv_.free_queue().size(); }

 private:
  struct Request {
    std::uint64_t id = 0;
    std::int64_t priority = 0;
    double arrival = 0.0;
    std::vector<TokenId> tokens;
    std::size_t num_prompt = 0, num_computed = 0, placeholders = 0, max_tokens = 0, min_tokens = 0;
    std::set<TokenId> stops;
    std::string salt;
    RequestTags tags;
    double entered = 0.0;
    NaiveKv::Sequence kv;
  };
  using Pointer = std::shared_ptr<Request>;
  struct Pin {
    Pointer request;
    double expiry = 0.0;
  };
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  [[nodiscard]] bool by_priority() const { return config_.scheduler.policy == SchedulingPolicy::priority; }

  [[nodiscard]] bool by_job() const { return config_.scheduler.policy == SchedulingPolicy::continuum; }

  // This part implements CONTINUUM. Jobs and tools are never forgotten here.
  void arrive(const std::string& job, double now) {
    entries_.try_emplace(job, now);
    if (const auto turn = turns_.find(job); turn != turns_.end() && !turn->second.first.empty())
      gaps_[turn->second.first].push_back(now - turn->second.second);
    turns_.erase(job);
  }

  [[nodiscard]] bool pinned(const Request& r) const {
    return !r.tags.job.empty() && std::ranges::any_of(pins_, [&](const Pin& pin) { return pin.request->tags.job == r.tags.job; });
  }

  // Ends the first pin that matches.
  template <class Matches>
  bool end_pin(Matches matches) {
    const auto pin = std::ranges::find_if(pins_, matches);
    if (pin == pins_.end()) return false;
    kv_.free(pin->request->kv);
    pins_.erase(pin);
    return true;
  }

  bool release_oldest_pin() {
    if (!config_.continuum.pins_give_way || pins_.empty()) return false;
    const double oldest = std::ranges::min_element(pins_, {}, &Pin::expiry)->expiry;
    return end_pin([oldest](const Pin& pin) { return pin.expiry == oldest; });
  }

  // Returns whether a pin keeps the blocks of the finished request.
  bool stays(const Pointer& r, RequestStatus status, double now) {
    const std::string& job = r->tags.job;
    if (!by_job() || job.empty()) return false;
    const auto of_job = [&](const Pin& pin) { return pin.request->tags.job == job; };
    if (config_.continuum.pins_end_with_job && (r->tags.is_last_step || status == RequestStatus::finished_aborted)) {
      end_pin(of_job);
      return false;
    }
    if (r->tags.is_last_step) return false;
    turns_[job] = {r->tags.tool, now};
    double sum = 0.0;
    for (const double gap : gaps_[r->tags.tool]) sum += gap;
    const auto count = static_cast<double>(gaps_[r->tags.tool].size());
    if (r->tags.tool.empty() || (count > 0 && sum / count > config_.continuum.longest_tool_s)) return false;
    end_pin(of_job);
    pins_.push_back({r, now + config_.continuum.pin_s});
    return true;
  }

  [[nodiscard]] std::tuple<bool, double> place(const Pointer& r) const {
    return {!pinned(*r), r->tags.job.empty() ? r->entered : entries_.at(r->tags.job)};
  }

  // Frees the blocks of the request forked last that has not run yet, except `r`.
  bool release_share(const Pointer& r) {
    const auto newest = std::ranges::find_if(sharing_.rbegin(), sharing_.rend(), [&](const Pointer& other) { return other != r; });
    if (newest == sharing_.rend()) return false;
    kv_.free((*newest)->kv);
    (*newest)->num_computed = 0;
    sharing_.erase(std::next(newest).base());
    return true;
  }

  [[nodiscard]] std::size_t limited(std::size_t n) const {
    const std::size_t threshold = config_.scheduler.long_prefill_token_threshold;
    return threshold > 0 ? std::min(n, threshold) : n;
  }

  void schedule_running(Step& step, std::size_t& budget) {
    for (std::size_t i = 0; i < running_.size() && budget > 0; ++i) {
      const Pointer r = running_[i];
      if (r->placeholders > 0 && r->num_computed + 2 - r->placeholders >= r->num_prompt + r->max_tokens) continue;
      const std::size_t n = std::min(
          {limited(r->tokens.size() + r->placeholders - r->num_computed), budget, config_.scheduler.max_model_len - 1 - r->num_computed});
      if (n == 0) continue;
      bool fits = true;
      std::vector<NaiveKv::Copy> copies;
      while (fits && !kv_.allocate(r->kv, {}, r->num_computed + n, r->num_computed, r->tokens, r->salt, copies))
        if (!release_oldest_pin() && !release_share(nullptr)) fits = preempt_one(step, budget, i) != r;
      if (!fits) return;
      run(*r, n, budget, step);
      step.rows.back().copies = copies;
    }
  }

  Pointer preempt_one(Step& step, std::size_t& budget, std::size_t& i) {
    auto last = running_.end() - 1;
    if (by_priority()) last = std::ranges::max_element(running_, {}, [](const Pointer& r) { return std::tuple(r->priority, r->arrival); });
    const auto unpinned = std::ranges::find_if(running_.rbegin(), running_.rend(), [this](const Pointer& r) { return !pinned(*r); });
    if (by_job() && unpinned != running_.rend()) last = unpinned.base() - 1;
    const Pointer victim = *last;
    running_.erase(last);
    const auto row = std::ranges::find(step.rows, victim->id, &Row::id);
    if (row != step.rows.end()) {
      budget += row->num_tokens;
      step.rows.erase(row);
      --i;
    }
    kv_.free(victim->kv);
    victim->num_computed = 0;
    waiting_.push_front(victim);
    step.preempted.push_back(victim->id);
    return victim;
  }

  bool admit(Step& step, std::size_t& budget) {
    auto first = waiting_.begin();
    if (by_priority())
      first = std::ranges::min_element(waiting_, {}, [](const Pointer& r) { return std::tuple(r->priority, r->arrival, r->id); });
    if (by_job()) first = std::ranges::min_element(waiting_, {}, [this](const Pointer& r) { return place(r); });
    const Pointer r = *first;
    const auto hit = r->num_computed == 0 ? kv_.find_prefix(r->tokens, r->salt) : std::vector<std::uint32_t>();
    const std::size_t num_hit = r->num_computed + hit.size() * config_.block_size;
    std::size_t n = limited(r->tokens.size() - num_hit);
    if (!config_.scheduler.enable_chunked_prefill && n > budget) return false;
    n = std::min(n, budget);
    const auto free_blocks = [&] { return running_.empty() && (release_oldest_pin() || release_share(r)); };
    while (config_.scheduler.reserve_full_isl && kv_.missing(r->kv, hit, r->tokens.size(), num_hit) > 0)
      if (!free_blocks()) return false;
    std::vector<NaiveKv::Copy> copies;
    while (!kv_.allocate(r->kv, hit, num_hit + n, num_hit, r->tokens, r->salt, copies))
      if (!free_blocks()) return false;
    waiting_.erase(first);
    std::erase(sharing_, r);
    running_.push_back(r);
    r->num_computed = num_hit;
    step.admitted.push_back(r->id);
    run(*r, n, budget, step);
    step.rows.back().copies = copies;
    return true;
  }

  static void run(Request& r, std::size_t n, std::size_t& budget, Step& step) {
    step.rows.push_back({r.id, r.num_computed, n, r.num_computed + n >= r.tokens.size() + r.placeholders, r.kv.blocks});
    budget -= n;
  }

  CoreConfig config_;
  NaiveKv kv_;
  std::deque<Pointer> waiting_;
  std::vector<Pointer> sharing_;  // forked requests that have not run
  std::vector<Pointer> running_;
  std::map<std::uint64_t, Pointer> all_;
  std::map<std::string, double> entries_;                        // by job
  std::map<std::string, std::pair<std::string, double>> turns_;  // by job: the tool of the turn that ended last, and its time
  std::map<std::string, std::vector<double>> gaps_;              // by tool
  std::vector<Pin> pins_;
};

}  // namespace quire::test
