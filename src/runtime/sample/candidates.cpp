// Applies temperature and filters to one row of logits and draws a token. Called by the sampler on any thread of the pool, each with
// separate scratch memory. Candidates are gathered and summed in the order of token ids, so the token depends only on the row and the
// random number. Most rows never sort the whole vocabulary: a threshold first reduces the number of candidates.
#include "runtime/sample/candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace quire {
namespace {

// The depth of a token is the logarithm of the likeliest token's weight divided by the token's weight. top_p first gathers the tokens up to
// kFirstDepth.
constexpr float kFirstDepth = 5.0F;
constexpr float kMaxDepth = 90.0F;  // tokens beyond this depth have weight zero

struct Shape {
  float max;
  float inverse_temperature;
};

// Gathers the tokens with a logit of at least `threshold`, with weights relative to the likeliest token.
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

// Gathers candidates that contain the whole top_p set, usually without sorting the rest of the vocabulary. Starts with a shallow depth and
// doubles the depth until the candidates have enough mass.
void gather_for_top_p(std::span<const float> row, Shape shape, double target, std::vector<Scored>& candidates) {
  float depth = kFirstDepth;
  while (depth < kMaxDepth) {
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
  QUIRE_CHECK(last >= 0, "at least one candidate has a positive weight");
  return last;
}

// Draws without filters: finds the block by the sums of the blocks, then the token within the block.
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
  QUIRE_CHECK(last >= 0, "the chosen block has a candidate with a positive weight");
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
  // Bisects the part that contains the border: partitions the part, then compares the mass above its middle with the target.
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
