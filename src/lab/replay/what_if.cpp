// Runs a journal's requests on two cores: one with the recorded configuration, one with the changed configuration. Both run in virtual
// time, so every difference comes from the changed configuration. Connectors, grammars and sessions would have to answer other questions
// than in the recording, so journals that use them are rejected.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "core/journal/call_bytes.h"
#include "core/journal/decision_digest.h"
#include "lab/replay/placeholder_tokens.h"
#include "lab/replay/recorded_workload.h"
#include "quire/journal.h"

namespace quire {
namespace {

constexpr std::uint32_t kNumIdle = 3;  // number of consecutive empty plans after which no request runs before the next arrival

double mean(const std::vector<double>& values) {
  return values.empty() ? 0.0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double percentile_of(std::vector<double>& values, double share) {
  if (values.empty()) return 0.0;
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::ranges::nth_element(values, at);
  return *at;
}

class VirtualRun {
 public:
  VirtualRun(const RecordedWorkload& workload, Core& core) : workload_(workload), core_(core), mean_step_s_(mean(workload.step_s)) {}

  Result<WhatIfRun> run() {
    const double begin_s = workload_.arrivals.empty() ? 0.0 : workload_.arrivals.front().time_s;
    now_s_ = begin_s;
    std::uint32_t num_idle = 0;
    while (true) {
      arrive();
      if (!core_.has_work()) {
        if (next_ == workload_.arrivals.size()) break;
        now_s_ = workload_.arrivals[next_].time_s;
        continue;
      }
      num_idle = step() ? 0 : num_idle + 1;
      if (num_idle <= kNumIdle) continue;
      if (next_ == workload_.arrivals.size())
        return fail(ErrorCode::invalid_argument, "configuration", "leaves requests waiting forever",
                    "use more blocks or more tokens per step");
      now_s_ = workload_.arrivals[next_].time_s;
      num_idle = 0;
    }
    return count(begin_s);
  }

  std::vector<std::uint64_t> digests;  // one per plan

 private:
  struct Open {
    double arrival_s = 0.0;
    std::uint64_t first_step = 0;
    std::size_t num_tokens = 0;
  };

  void arrive() {
    for (; next_ < workload_.arrivals.size() && workload_.arrivals[next_].time_s <= now_s_; ++next_) {
      const RecordedWorkload::Arrival& arrival = workload_.arrivals[next_];
      ByteReader in(arrival.call);
      call_.read(in);
      play(call_.call(), core_);
      if (core_.view(arrival.id)) open_[arrival.id] = {.arrival_s = arrival.time_s, .first_step = counts_.num_steps};
      counts_.num_refused += core_.view(arrival.id) ? 0 : 1;
    }
    // Ends requests that never received a token at the time at which they ended in the journal.
    for (auto waiting = open_.begin(); waiting != open_.end();)
      waiting = waiting->second.num_tokens == 0 && tokens_of(waiting->first).empty() && has_left(waiting->first) ? end(waiting) : ++waiting;
  }
  [[nodiscard]] bool has_left(RequestId id) const {
    const auto ended = workload_.ended_s.find(id);
    return ended != workload_.ended_s.end() && ended->second <= now_s_;
  }
  [[nodiscard]] std::span<const TokenId> tokens_of(RequestId id) const {
    const auto found = workload_.tokens.find(id);
    return found == workload_.tokens.end() ? std::span<const TokenId>() : found->second;
  }
  std::unordered_map<RequestId, Open>::iterator end(std::unordered_map<RequestId, Open>::iterator which) {
    core_.finish(which->first, RequestStatus::finished_aborted, {.now = now_s_});
    return open_.erase(which);
  }

  // Runs one step. Returns whether it computed anything.
  bool step() {
    for (; next_limits_ < workload_.prefill_limits.size() && workload_.prefill_limits[next_limits_].first <= now_s_; ++next_limits_)
      core_.set_prefill_limits(workload_.prefill_limits[next_limits_].second);
    const StepPlan& plan = core_.schedule({.now = now_s_});
    digests.push_back(digest_of(plan));
    std::vector<SampledToken> sampled;
    for (const ScheduledRequest& s : plan.scheduled) {
      if (!s.samples) continue;
      const std::span<const TokenId> tokens = tokens_of(s.id);
      const auto open = open_.find(s.id);
      const std::size_t at = open == open_.end() ? tokens.size() : open->second.num_tokens;
      sampled.push_back({s.id, at < tokens.size() ? tokens[at] : 0});
    }
    const bool computes = plan.num_scheduled_tokens > 0;
    if (computes) now_s_ += num_timed_ < workload_.step_s.size() ? workload_.step_s[num_timed_++] : mean_step_s_;
    ++counts_.num_steps;
    const auto applied = core_.apply({.step = plan.step, .sampled = sampled}, {.now = now_s_});
    if (applied) take(**applied);
    return computes;
  }

  void take(const StepOutcome& outcome) {
    for (const FirstAdmission& admission : outcome.first_admissions) counts_.num_hit_tokens += admission.num_cached_tokens;
    for (const RequestUpdate& update : outcome.updates) {
      const auto open = open_.find(update.id);
      if (open == open_.end()) continue;
      if (open->second.num_tokens == 0 && !update.tokens.empty()) {
        ttft_s_.push_back(now_s_ - open->second.arrival_s);
        ttft_steps_.push_back(static_cast<double>(counts_.num_steps - open->second.first_step));
        last_s_ = now_s_;
      }
      if (!update.tokens.empty()) last_s_ = now_s_;
      open->second.num_tokens += update.tokens.size();
      if (update.finished)
        open_.erase(open);
      else if (open->second.num_tokens >= tokens_of(update.id).size() && workload_.ended_s.contains(update.id))
        end(open);  // in the journal, the host ended the request after this number of tokens
    }
  }

  WhatIfRun count(double begin_s) {
    counts_.num_preemptions = core_.counters().num_preemptions;
    counts_.num_prompt_tokens = core_.counters().prefix_query_tokens;
    counts_.mean_ttft_steps = mean(ttft_steps_);
    counts_.mean_ttft_s = mean(ttft_s_);
    counts_.p50_ttft_s = percentile_of(ttft_s_, 0.5);
    counts_.p90_ttft_s = percentile_of(ttft_s_, 0.9);
    counts_.end_s = std::max(0.0, last_s_ - begin_s);
    return counts_;
  }

  const RecordedWorkload& workload_;
  Core& core_;
  const double mean_step_s_;
  RecordedCall call_;
  std::size_t next_ = 0, next_limits_ = 0, num_timed_ = 0;
  double now_s_ = 0.0, last_s_ = 0.0;
  std::unordered_map<RequestId, Open> open_;
  std::vector<double> ttft_s_, ttft_steps_;
  WhatIfRun counts_;
};

Result<void> check(const ReplayReport& report, const CoreConfig& config, const RecordedWorkload& workload) {
  const SeamRecord& seams = report.header.seams;
  std::string missing = workload.missing;
  if (seams.has_connector) missing = "a connector or tier";
  if (seams.has_encoder_connector || (seams.has_hash && !seams.omits_tokens)) missing = "an external encoder cache or block hashes";
  if (config.speculation.num_spec_tokens > 0) missing = "draft tokens";
  if (config.swap.swap_choice != SwapChoice::off) missing = "swapped requests";
  if (config.scheduler.policy == SchedulingPolicy::continuum && workload.needs_tool_namer)
    missing = "job turns that do not name their tool";
  if (report.start) missing = "no beginning because it continues another file";
  if (report.difference) missing = "decisions that this quire would make differently";
  if (missing.empty()) return {};
  return fail(ErrorCode::unsupported, "JOURNAL", fmt::format("has {}, so the results of another configuration are unknown", missing),
              "replay it without changed options");
}

// Returns whether `config` can use the recorded block hashes. Without tokens in the journal, common prefixes are known only from these
// hashes.
bool has_names_for(const CoreConfig& config, const CoreConfig& recorded) {
  if (!config.prefix_cache.enable_prefix_caching) return true;
  return recorded.prefix_cache.enable_prefix_caching && config.block_size == recorded.block_size;
}

}  // namespace

Result<WhatIf> what_if(const std::string& path, const std::function<void(CoreConfig& config)>& change_config) {
  RecordedWorkload workload;
  auto report = replay(path, {.also = &workload});
  if (!report) return std::unexpected(std::move(report.error()));
  CoreConfig config = report->header.config;
  if (Result<void> checked = check(*report, config, workload); !checked) return std::unexpected(std::move(checked.error()));
  const bool omits_tokens = report->header.seams.omits_tokens;
  if (omits_tokens) fill_placeholder_tokens(workload, config);
  const CoreConfig recorded = config;
  WhatIf answer{.num_requests = workload.arrivals.size()};
  std::vector<std::uint64_t> digests;
  for (WhatIfRun* into : {&answer.before, &answer.after}) {
    if (into == &answer.after) change_config(config);
    if (Result<void> checked = check(*report, config, workload); !checked) return std::unexpected(std::move(checked.error()));
    if (omits_tokens && !has_names_for(config, recorded)) {
      return fail(ErrorCode::unsupported, "JOURNAL",
                  fmt::format("has no tokens, and block hashes {}", recorded.prefix_cache.enable_prefix_caching
                                                                        ? fmt::format("only for blocks of {} tokens", recorded.block_size)
                                                                        : "are missing too, so shared prefixes are unknown"),
                  "use the recorded prefix caching and block size, or record journals with tokens");
    }
    auto core = Core::create(config);
    if (!core) return std::unexpected(std::move(core.error()));
    VirtualRun run(workload, **core);
    auto counted = run.run();
    if (!counted) return std::unexpected(std::move(counted.error()));
    *into = *counted;
    const auto [first, second] = std::ranges::mismatch(digests, run.digests);
    if (into == &answer.after && (first != digests.end() || second != run.digests.end()))
      answer.first_difference = StepId{static_cast<std::uint64_t>(first - digests.begin())};
    digests = std::move(run.digests);
  }
  return answer;
}

}  // namespace quire
