// Temperature, filters and the draw for one row of logits. Called by the sampler, on any thread of the pool, with scratch of its own.
// Candidates are gathered in the order of token ids and summed in that order, so the token depends on the row and the random number alone.
// Most rows never sort the vocabulary: thresholds cut it down first.
#include "runtime/sample/candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace quire {
namespace {

// exp(-5) of the likeliest token's weight: a first guess of how deep a top_p set reaches.
constexpr float kFirstDepth = 5.0F;
constexpr float kDeepest = 90.0F;  // weights below this are zero

struct Shape {
  float max;
  float inverse_temperature;
};

// Entries with a logit of at least `threshold`, as weights relative to the likeliest.
void gather(std::span<const float> row, Shape shape, float threshold, std::vector<Scored>& candidates) {
  candidates.clear();
  for (std::size_t i = 0; i < row.size(); ++i)
    if (row[i] >= threshold && row[i] != -kInfinity)
      candidates.push_back({exp_nonpositive((row[i] - shape.max) * shape.inverse_temperature), static_cast<TokenId>(i)});
}

double mass_of(std::span<const Scored> entries) {
  double sum = 0.0;
  for (const Scored& entry : entries) sum += static_cast<double>(entry.score);
  return sum;
}

// The candidates hold the whole top_p set without holding the whole vocabulary, as a rule.
// Tries a shallow cut first and doubles its depth while too little mass lies above it.
void gather_for_top_p(std::span<const float> row, Shape shape, double target, std::vector<Scored>& candidates) {
  float depth = kFirstDepth;
  while (depth < kDeepest) {
    gather(row, shape, shape.max - depth / shape.inverse_temperature, candidates);
    if (mass_of(candidates) >= target * (1.0 + 1e-6)) return;
    depth *= 2;
  }
  gather(row, shape, -kInfinity, candidates);
}

TokenId pick(std::span<const Scored> entries, double uniform) {
  const double target = uniform * mass_of(entries);
  double sum = 0.0;
  TokenId last = -1;
  for (const Scored& entry : entries) {
    sum += static_cast<double>(entry.score);
    last = entry.score > 0.0F ? entry.token : last;
    if (sum > target) return entry.token;
  }
  QUIRE_CHECK(last >= 0, "no candidate has any weight");
  return last;
}

// Without filters: block sums first, then one block token by token.
TokenId pick_from_row(std::span<const float> row, Shape shape, double uniform, std::vector<double>& block_sums) {
  block_sums.resize(num_sum_blocks(row.size()));
  const double target = uniform * exp_sum(row, shape.max, shape.inverse_temperature, block_sums);
  double sum = 0.0;
  std::size_t last_block = 0;
  for (std::size_t block = 0; block < block_sums.size(); ++block) {
    last_block = block_sums[block] > 0.0 ? block : last_block;
    if (sum + block_sums[block] > target) {
      last_block = block;
      break;
    }
    sum += block_sums[block];
  }
  TokenId last = -1;
  const std::size_t begin = last_block * kSumBlock;
  for (std::size_t i = begin; i < std::min(row.size(), begin + kSumBlock); ++i) {
    const float weight = exp_nonpositive((row[i] - shape.max) * shape.inverse_temperature);
    last = weight > 0.0F ? static_cast<TokenId>(i) : last;
    sum += static_cast<double>(weight);
    if (weight > 0.0F && sum > target) break;
  }
  QUIRE_CHECK(last >= 0, "the chosen block has no weight");
  return last;
}

}  // namespace

void DrawScratch::reserve(std::uint32_t vocab_size) {
  candidates.reserve(vocab_size);
  block_sums.reserve(num_sum_blocks(vocab_size));
}

std::size_t select_mass(std::span<Scored> entries, double target) {
  std::size_t begin = 0;
  std::size_t end = entries.size();
  double above = 0.0;  // mass of entries[0, begin), all preferred to the rest
  // Halves the part in which the border lies: partition, then look at the mass above it.
  while (end - begin > 8) {
    const auto middle = entries.begin() + static_cast<std::ptrdiff_t>(begin + (end - begin) / 2);
    std::nth_element(entries.begin() + static_cast<std::ptrdiff_t>(begin), middle, entries.begin() + static_cast<std::ptrdiff_t>(end));
    const auto split = static_cast<std::size_t>(middle - entries.begin());
    const double upper = mass_of(entries.subspan(begin, split - begin));
    if (above + upper >= target) {
      end = split;
    } else {
      above += upper;
      begin = split;
    }
  }
  std::sort(entries.begin() + static_cast<std::ptrdiff_t>(begin), entries.begin() + static_cast<std::ptrdiff_t>(end));
  for (; begin < end; ++begin) {
    above += static_cast<double>(entries[begin].score);
    if (above >= target) return begin + 1;
  }
  return end;
}

TokenId draw_token(std::span<const float> row, float max, const DrawParams& params, double uniform, DrawScratch& scratch) {
  const Shape shape{max, 1.0F / params.temperature};
  const bool use_top_k = params.top_k > 0 && static_cast<std::size_t>(params.top_k) < row.size();
  float threshold = -kInfinity;
  if (params.min_p > 0.0F) threshold = max + params.temperature * std::log(params.min_p);
  if (use_top_k) threshold = std::max(threshold, kth_largest(row, static_cast<std::uint32_t>(params.top_k), scratch.candidates));
  if (threshold == -kInfinity && params.top_p >= 1.0F) return pick_from_row(row, shape, uniform, scratch.block_sums);
  if (threshold == -kInfinity) {
    const double target = exp_sum(row, max, shape.inverse_temperature) * static_cast<double>(params.top_p);
    gather_for_top_p(row, shape, target, scratch.candidates);
    return pick(std::span(scratch.candidates).first(select_mass(scratch.candidates, target)), uniform);
  }
  gather(row, shape, threshold, scratch.candidates);
  std::span<Scored> kept = scratch.candidates;
  if (params.top_p < 1.0F) kept = kept.first(select_mass(kept, mass_of(kept) * static_cast<double>(params.top_p)));
  return pick(kept, uniform);
}

}  // namespace quire
