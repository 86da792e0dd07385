// Computes hit rates and savings at other cache sizes from counts. Pure functions, for any thread.
#include <algorithm>
#include <iterator>
#include <optional>

#include "base/check.h"
#include "quire/lab/curve.h"

namespace quire {
namespace {

// The hit rate at the size of the existing tiers was measured. At this size and above, the estimate is at least the measured rate.
std::vector<double> hit_rates(const HitRateCurve& curve, const CurveCounts& counts, const CurveCosts& costs) {
  std::vector<double> rates = hit_rates(curve, counts);
  if (costs.named.empty() || counts.query_tokens <= 0.0) return rates;
  const double measured = std::min((counts.found_tokens + counts.external_tokens) / counts.query_tokens, 1.0);
  for (std::size_t i = 0; i < rates.size(); ++i)
    if (curve.sizes[i] >= costs.named.back().second) rates[i] = std::max(rates[i], measured);
  return rates;
}

}  // namespace

std::vector<double> hit_rates(const HitRateCurve& curve, const CurveCounts& counts) {
  std::vector<double> rates(curve.sizes.size(), 0.0);
  if (counts.query_tokens <= 0.0 || counts.hit_tokens.size() != rates.size()) return rates;
  const auto own = std::ranges::find(curve.sizes, std::uint64_t{curve.num_blocks});
  QUIRE_CHECK(own != curve.sizes.end(), "the sizes include the size of the cache");
  const double moved = counts.found_tokens - counts.hit_tokens[static_cast<std::size_t>(own - curve.sizes.begin())];
  for (std::size_t i = 0; i < rates.size(); ++i)
    rates[i] = std::clamp((counts.hit_tokens[i] + moved) / counts.query_tokens, i > 0 ? rates[i - 1] : 0.0, 1.0);
  return rates;
}

std::vector<CurveRow> curve_rows(const HitRateCurve& curve, const CurveCounts& counts, const CurveCosts& costs) {
  const std::vector<double> rates = hit_rates(curve, counts, costs);
  const auto own = std::ranges::find(curve.sizes, std::uint64_t{curve.num_blocks});
  QUIRE_CHECK(own != curve.sizes.end(), "the sizes include the size of the cache");
  const double rate_now = rates[static_cast<std::size_t>(own - curve.sizes.begin())];
  const double tokens_per_s = curve.seconds > 0.0 ? counts.query_tokens / curve.seconds : 0.0;
  std::vector<CurveRow> rows;
  rows.reserve(rates.size());
  for (std::size_t i = 0; i < rates.size(); ++i) {
    CurveRow row{.num_blocks = curve.sizes[i], .num_bytes = curve.sizes[i] * costs.block_bytes, .hit_rate = rates[i]};
    if (row.num_blocks == curve.num_blocks) row.label = "now";
    for (const auto& [name, size] : costs.named)
      if (size == row.num_blocks) row.label += (row.label.empty() ? "" : ", ") + name;
    row.saved_tokens_per_s = (row.hit_rate - rate_now) * tokens_per_s;
    if (costs.prefill_tokens_per_s > 0.0) row.saved_s_per_s = row.saved_tokens_per_s / costs.prefill_tokens_per_s;
    rows.push_back(std::move(row));
  }
  return rows;
}

std::optional<CurveRow> curve_row_at(std::span<const CurveRow> rows, std::uint64_t num_blocks) {
  const auto above = std::ranges::lower_bound(rows, num_blocks, {}, &CurveRow::num_blocks);
  if (above == rows.end()) return std::nullopt;
  if (above->num_blocks == num_blocks) return *above;
  if (above == rows.begin()) return std::nullopt;
  const CurveRow& below = *std::prev(above);
  const double part = static_cast<double>(num_blocks - below.num_blocks) / static_cast<double>(above->num_blocks - below.num_blocks);
  const auto between = [part](double low, double high) { return low + part * (high - low); };
  CurveRow row{.num_blocks = num_blocks,
               .num_bytes = num_blocks * (above->num_bytes / above->num_blocks),
               .hit_rate = between(below.hit_rate, above->hit_rate),
               .saved_tokens_per_s = between(below.saved_tokens_per_s, above->saved_tokens_per_s)};
  const std::optional<double> from = below.saved_s_per_s, to = above->saved_s_per_s;
  if (from.has_value() && to.has_value()) row.saved_s_per_s = between(*from, *to);
  return row;
}

}  // namespace quire
