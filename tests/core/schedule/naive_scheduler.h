#pragma once
// The scheduling rules of vLLM V1 in their plainest form, over the naive KV manager: no slots, no deltas, no reuse of memory.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "core/kv/naive_kv.h"
#include "core/schedule/scheduler.h"

namespace quire::test {

class NaiveScheduler {
 public:
  struct Row {
    std::uint64_t id = 0;
    std::size_t num_computed = 0;
    std::size_t num_tokens = 0;
    bool samples = false;
    std::vector<std::uint32_t> table;
    friend bool operator==(const Row&, const Row&) = default;
  };
  struct Step {
    std::vector<Row> rows;
    std::vector<std::uint64_t> admitted, preempted;
  };

  explicit NaiveScheduler(const SchedulerConfig& config)
      : config_(config), kv_(config.num_blocks, config.block_size, config.enable_prefix_caching) {}

  void add(const NewRequest& given) {
    auto r = std::make_shared<Request>();
    r->id = given.id.value;
    r->tokens.assign(given.prompt.begin(), given.prompt.end());
    r->num_prompt = given.prompt.size();
    r->max_tokens = given.max_tokens;
    r->min_tokens = given.min_tokens;
    r->stops.insert(given.stop_token_ids.begin(), given.stop_token_ids.end());
    if (!given.ignore_eos) {
      r->stops.insert(given.eos_ids.begin(), given.eos_ids.end());
    }
    r->extra = given.extra_keys;
    waiting_.push_back(r);
    all_[r->id] = r;
  }

  Step schedule() {
    Step step;
    std::size_t budget = config_.scheduler.max_num_batched_tokens;
    for (std::size_t i = 0; i < running_.size() && budget > 0; ++i) {
      const auto r = running_[i];
      std::size_t n =
          std::min({limited(r->tokens.size() - r->num_computed), budget, config_.scheduler.max_model_len - 1 - r->num_computed});
      if (n == 0) {
        continue;
      }
      bool fits = true;
      while (!kv_.allocate(r->kv, {}, r->num_computed + n, r->tokens, r->extra)) {
        const auto victim = running_.back();
        running_.pop_back();
        kv_.free(victim->kv);
        victim->num_computed = 0;
        waiting_.push_front(victim);
        step.preempted.push_back(victim->id);
        if (victim == r) {
          fits = false;
          break;
        }
      }
      if (!fits) {
        break;
      }
      run(*r, n, budget, step);
    }
    while (step.preempted.empty() && !waiting_.empty() && budget > 0 && running_.size() < config_.scheduler.max_num_seqs) {
      const auto r = waiting_.front();
      const auto hit = kv_.find_prefix(r->tokens, r->extra);
      const std::size_t num_hit = hit.size() * config_.block_size;
      std::size_t n = limited(r->tokens.size() - num_hit);
      if (!config_.scheduler.enable_chunked_prefill && n > budget) {
        break;
      }
      n = std::min(n, budget);
      if (config_.scheduler.reserve_full_isl && kv_.missing(r->kv, hit, r->tokens.size()) > 0) {
        break;
      }
      if (!kv_.allocate(r->kv, hit, num_hit + n, r->tokens, r->extra)) {
        break;
      }
      waiting_.pop_front();
      running_.push_back(r);
      r->num_computed = num_hit;
      step.admitted.push_back(r->id);
      run(*r, n, budget, step);
    }
    return step;
  }

  // Returns whether the request is done.
  bool take_token(std::uint64_t id, TokenId token) {
    const auto r = all_.at(id);
    r->tokens.push_back(token);
    const std::size_t num_outputs = r->tokens.size() - r->num_prompt;
    const bool done = num_outputs >= r->min_tokens &&
                      (r->stops.contains(token) || r->tokens.size() >= config_.scheduler.max_model_len || num_outputs >= r->max_tokens);
    if (done) {
      finish(id);
    }
    return done;
  }

  void finish(std::uint64_t id) {
    const auto r = all_.at(id);
    kv_.free(r->kv);
    std::erase(running_, r);
    std::erase(waiting_, r);
    all_.erase(id);
  }

  [[nodiscard]] bool has_work() const { return !all_.empty(); }
  [[nodiscard]] bool knows(std::uint64_t id) const { return all_.contains(id); }
  [[nodiscard]] std::size_t num_free_blocks() const { return kv_.free_queue().size(); }

 private:
  struct Request {
    std::uint64_t id = 0;
    std::vector<TokenId> tokens;
    std::size_t num_prompt = 0, num_computed = 0, max_tokens = 0, min_tokens = 0;
    std::set<TokenId> stops;
    ExtraKeys extra;
    NaiveKv::Sequence kv;
  };

  [[nodiscard]] std::size_t limited(std::size_t n) const {
    const std::size_t threshold = config_.scheduler.long_prefill_token_threshold;
    return threshold > 0 ? std::min(n, threshold) : n;
  }

  static void run(Request& r, std::size_t n, std::size_t& budget, Step& step) {
    step.rows.push_back({r.id, r.num_computed, n, r.num_computed + n == r.tokens.size(), r.kv.blocks});
    r.num_computed += n;
    budget -= n;
  }

  SchedulerConfig config_;
  NaiveKv kv_;
  std::deque<std::shared_ptr<Request>> waiting_;
  std::vector<std::shared_ptr<Request>> running_;
  std::map<std::uint64_t, std::shared_ptr<Request>> all_;
};

}  // namespace quire::test
