// Computes the results of a load run from the records of its requests. Only completed requests have latencies and tokens.
#include "traffic/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>

namespace quire {
namespace {

constexpr double kMilli = 1e3, kMaxSamples = 200.0, kSamplesPerSecond = 4.0;

LatencyFigures latency_figures(std::vector<double> seconds) {
  for (double& value : seconds) value *= kMilli;
  LatencyFigures figures;
  figures.values = distribution_of(seconds);
  double squares = 0.0;
  for (const double value : seconds) squares += (value - figures.values.mean) * (value - figures.values.mean);
  if (!seconds.empty()) figures.deviation = std::sqrt(squares / static_cast<double>(seconds.size()));
  return figures;
}

// Returns the reason with each number replaced by '#'.
std::string without_numbers(const std::string& reason) {
  std::string result;
  for (const char c : reason)
    if (c < '0' || c > '9')
      result += c;
    else if (!result.ends_with('#'))
      result += '#';
  return result;
}

std::vector<std::pair<std::string, std::uint64_t>> grouped_failures(std::span<const RequestRecord> records) {
  std::map<std::string, std::pair<std::string, std::uint64_t>> groups;  // by reason without numbers, after the status
  for (const RequestRecord& record : records) {
    if (record.end != RequestRecord::End::failed) continue;
    const std::size_t status_end = std::min({record.failure.find(": "), record.failure.size(), std::size_t{4}});
    const std::string key = record.failure.substr(0, status_end) + without_numbers(record.failure.substr(status_end));
    ++groups.try_emplace(key, record.failure, 0).first->second.second;
  }
  std::vector<std::pair<std::string, std::uint64_t>> failures;
  for (auto& [key, group] : groups) failures.push_back(std::move(group));
  std::ranges::sort(failures, [](const auto& a, const auto& b) { return std::pair(b.second, a.first) < std::pair(a.second, b.first); });
  return failures;
}

bool is_good(const RequestRecord& record, const GoodputLimits& limits) {
  return record.ttft_s * kMilli <= limits.ttft_ms.value_or(INFINITY) && record.tpot_s() * kMilli <= limits.tpot_ms.value_or(INFINITY) &&
         record.latency_s * kMilli <= limits.e2el_ms.value_or(INFINITY);
}

// Adds up the output tokens of equal intervals of time. All chunks of a request count as equally many tokens.
class TokenCounts {
 public:
  TokenCounts(std::size_t num_intervals, double interval_s) : counts_(num_intervals, 0.0), interval_s_(interval_s) {}

  void add(const RequestRecord& record) {
    const double tokens = static_cast<double>(record.output_tokens) / static_cast<double>(record.gaps_s.size() + 1);
    double time_s = record.sent_s + record.ttft_s;
    add(time_s, tokens);
    for (const float gap_s : record.gaps_s) add(time_s += static_cast<double>(gap_s), tokens);
  }
  [[nodiscard]] const std::vector<double>& counts() const { return counts_; }

 private:
  void add(double time_s, double tokens) {
    const auto interval = static_cast<std::size_t>(std::max(0.0, time_s / interval_s_));
    counts_[std::min(interval, counts_.size() - 1)] += tokens;
  }

  std::vector<double> counts_;
  double interval_s_;
};

std::vector<TrafficSample> timeline_of(const TrafficResult& result) {
  const double num = std::clamp(std::ceil(result.duration_s * kSamplesPerSecond), 1.0, kMaxSamples);
  const double interval_s = std::max(result.duration_s, 1e-9) / num;
  std::vector<TrafficSample> samples(static_cast<std::size_t>(num));
  TokenCounts tokens(samples.size(), interval_s);
  for (const RequestRecord& record : result.records) {
    if (record.sent_s < 0.0) continue;
    const double end_s = record.end == RequestRecord::End::none ? result.duration_s : record.sent_s + record.latency_s;
    for (auto i = static_cast<std::size_t>(record.sent_s / interval_s); i < samples.size() && static_cast<double>(i) * interval_s < end_s;
         ++i) {
      const double begin = std::max(record.sent_s, static_cast<double>(i) * interval_s);
      samples[i].num_running += (std::min(end_s, static_cast<double>(i + 1) * interval_s) - begin) / interval_s;
    }
    if (record.end == RequestRecord::End::completed) tokens.add(record);
  }
  for (std::size_t i = 0; i < samples.size(); ++i) {
    samples[i].time_s = static_cast<double>(i + 1) * interval_s;
    samples[i].output_tokens_per_s = tokens.counts()[i] / interval_s;
  }
  return samples;
}

}  // namespace

Result<GoodputLimits> parse_goodput(std::span<const std::string> texts) {
  GoodputLimits limits;
  for (const std::string& text : texts) {
    const auto wrong = [&](const char* what) {
      return fail(ErrorCode::invalid_argument, "--goodput", fmt::format("'{}' {}", text, what),
                  "write NAME:MILLISECONDS, such as ttft:500");
    };
    const std::size_t colon = text.find(':');
    if (colon == std::string::npos) return wrong("has no colon");
    const std::string name = text.substr(0, colon);
    std::optional<double>* const limit = name == "ttft"   ? &limits.ttft_ms
                                         : name == "tpot" ? &limits.tpot_ms
                                         : name == "e2el" ? &limits.e2el_ms
                                                          : nullptr;
    if (limit == nullptr) return wrong("has an unknown name; use ttft, tpot or e2el");
    if (*limit) return wrong("repeats a name");
    double value = 0.0;
    const auto [end, error] = std::from_chars(text.data() + colon + 1, text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !(value >= 0.0)) return wrong("has no valid number of milliseconds");
    *limit = value;
  }
  return limits;
}

TrafficFigures figures_of(const TrafficResult& result, const GoodputLimits& limits) {
  TrafficFigures figures;
  figures.duration_s = result.duration_s;
  figures.peak_concurrency = result.peak_concurrency;
  std::vector<double> ttfts, tpots, gaps, latencies;
  TokenCounts per_second(static_cast<std::size_t>(result.duration_s) + 1, 1.0);
  std::uint64_t num_good = 0;
  for (const RequestRecord& record : result.records) {
    figures.num_failed += record.end == RequestRecord::End::failed ? 1 : 0;
    figures.num_unfinished += record.end == RequestRecord::End::none ? 1 : 0;
    if (record.end != RequestRecord::End::completed) continue;
    ++figures.num_completed;
    figures.input_tokens += record.prompt_tokens;
    figures.output_tokens += record.output_tokens;
    figures.cached_tokens += record.cached_tokens;
    figures.has_usage = figures.has_usage && record.has_usage;
    figures.has_cached_tokens = figures.has_cached_tokens || record.has_cached_tokens;
    ttfts.push_back(record.ttft_s);
    if (record.output_tokens > 1) tpots.push_back(record.tpot_s());
    gaps.insert(gaps.end(), record.gaps_s.begin(), record.gaps_s.end());
    latencies.push_back(record.latency_s);
    per_second.add(record);
    num_good += is_good(record, limits) ? 1 : 0;
  }
  if (limits.any()) figures.goodput_per_s = figures.per_s(num_good);
  figures.max_output_tokens_per_s = std::ranges::max(per_second.counts());
  figures.failures = grouped_failures(result.records);
  figures.ttft_ms = latency_figures(std::move(ttfts));
  figures.tpot_ms = latency_figures(std::move(tpots));
  figures.itl_ms = latency_figures(std::move(gaps));
  figures.e2el_ms = latency_figures(std::move(latencies));
  figures.timeline = timeline_of(result);
  return figures;
}

}  // namespace quire
