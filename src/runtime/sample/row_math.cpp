// Loops over one row of logits: maximum, exponentials, sums, and the best entries. Called by the sampler on any thread. Each loop has 16
// independent lanes, which the compiler turns into vectors of any width, and joins the lanes in a fixed order. The bits are therefore the
// same on every machine. The loop for the maximum also detects NaN and infinities.
#include "runtime/sample/row_math.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/exp_constants.h"

namespace quire {
namespace {

constexpr std::size_t kLanes = 16;
// Up to this count, a heap of the best entries is faster than a selection over a copy of the row.
constexpr std::uint32_t kHeapLimit = 256;

// Computes e^x with the coefficients of Cephes (base/exp_constants.h) and a fixed sequence of operations without branches.
inline float exp_inline(float x) {
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  const float clamped = x < -87.0F ? -87.0F : x;
  const float shifted = clamped * exp_constants::kLog2E + kRound;
  const float whole = shifted - kRound;
  const float r = clamped - whole * exp_constants::kLn2High - whole * exp_constants::kLn2Low;
  float p = exp_constants::kFirst;
  for (const float c : exp_constants::kRest) p = p * r + c;
  p = p * r * r + r + 1.0F;
  const auto exponent = (std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kRound)) << 23U;
  const float value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) + exponent);
  return x < -87.0F ? 0.0F : value;
}

double block_exp_sum(const float* row, std::size_t size, float max, float inverse_temperature) {
  std::array<float, kLanes> lanes{};
  std::size_t i = 0;
  for (; i + kLanes <= size; i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += exp_inline((row[i + lane] - max) * inverse_temperature);
  for (; i < size; ++i) lanes[0] += exp_inline((row[i] - max) * inverse_temperature);
  double sum = 0.0;
  for (const float lane : lanes) sum += static_cast<double>(lane);
  return sum;
}

// Returns whether any of the kLanes entries is above `threshold`.
inline bool any_above(const float* row, float threshold) {
  bool any = false;
  for (std::size_t lane = 0; lane < kLanes; ++lane) any |= row[lane] > threshold;
  return any;
}

// Adds the entry to `heap`, which keeps the `count` best entries so far. The front of the heap is the worst of these.
void offer(std::vector<Scored>& heap, std::uint32_t count, Scored entry) {
  if (heap.size() < count) {
    heap.push_back(entry);
    std::push_heap(heap.begin(), heap.end());
  } else if (entry < heap.front()) {
    std::pop_heap(heap.begin(), heap.end());
    heap.back() = entry;
    std::push_heap(heap.begin(), heap.end());
  }
}

// Finds the `count` best entries of the row. Compares 16 entries at a time with the worst entry in the heap; nearly all are below it, and
// the heap does not change.
void best_by_heap(std::span<const float> row, std::uint32_t count, std::vector<Scored>& heap) {
  heap.clear();
  float threshold = -kInfinity;
  std::size_t i = 0;
  const auto offer_range = [&](std::size_t end) {
    for (; i < end; ++i) {
      if (row[i] > threshold) {
        offer(heap, count, {row[i], static_cast<TokenId>(i)});
        threshold = heap.size() == count ? heap.front().score : -kInfinity;
      }
    }
  };
  while (i + kLanes <= row.size())
    if (any_above(&row[i], threshold))
      offer_range(i + kLanes);
    else
      i += kLanes;
  offer_range(row.size());
}

// Returns the maximum; NaN if the maximum is infinite, or if an entry is NaN or below `lowest`.
float max_from(std::span<const float> row, float lowest) {
  std::array<float, kLanes> lanes;
  lanes.fill(-kInfinity);
  std::array<std::uint32_t, kLanes> bad{};
  std::size_t i = 0;
  for (; i + kLanes <= row.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float x = row[i + lane];
      lanes[lane] = x > lanes[lane] ? x : lanes[lane];
      bad[lane] |= static_cast<std::uint32_t>(!(x >= lowest));
    }
  }
  for (; i < row.size(); ++i) {
    lanes[0] = row[i] > lanes[0] ? row[i] : lanes[0];
    bad[0] |= static_cast<std::uint32_t>(!(row[i] >= lowest));
  }
  const float max = *std::max_element(lanes.begin(), lanes.end());
  const bool any_bad = std::any_of(bad.begin(), bad.end(), [](std::uint32_t flag) { return flag != 0; });
  return any_bad || std::isinf(max) ? std::numeric_limits<float>::quiet_NaN() : max;
}

}  // namespace

float exp_nonpositive(float x) {
  return exp_inline(x);
}

float row_max(std::span<const float> row) {
  return max_from(row, -kInfinity);
}

float finite_row_max(std::span<const float> row) {
  return max_from(row, std::numeric_limits<float>::lowest());
}

TokenId first_index_of(std::span<const float> row, float max) {
  const auto found = std::find(row.begin(), row.end(), max);
  QUIRE_CHECK(found != row.end(), "max is a value of this row");
  return static_cast<TokenId>(found - row.begin());
}

double exp_sum(std::span<const float> row, float max, float inverse_temperature, std::span<double> block_sums) {
  double sum = 0.0;
  for (std::size_t begin = 0, block = 0; begin < row.size(); begin += kSumBlock, ++block) {
    const double part = block_exp_sum(&row[begin], std::min(kSumBlock, row.size() - begin), max, inverse_temperature);
    if (!block_sums.empty()) block_sums[block] = part;
    sum += part;
  }
  return sum;
}

std::uint32_t count_greater(std::span<const float> row, float value) {
  std::uint32_t count = 0;
  for (const float x : row) count += static_cast<std::uint32_t>(x > value);
  return count;
}

void top_entries(std::span<const float> row, std::uint32_t count, std::vector<Scored>& best) {
  best.clear();
  if (count > 0) {
    best_by_heap(row, count, best);
    std::sort_heap(best.begin(), best.end());
  }
}

float kth_largest(std::span<const float> row, std::uint32_t count, std::vector<Scored>& scratch) {
  QUIRE_CHECK(count >= 1 && count <= row.size());
  if (count <= kHeapLimit) {
    best_by_heap(row, count, scratch);
    return scratch.size() == count ? scratch.front().score : -kInfinity;
  }
  scratch.clear();
  for (std::size_t i = 0; i < row.size(); ++i) scratch.push_back({row[i], static_cast<TokenId>(i)});
  std::nth_element(scratch.begin(), scratch.begin() + (count - 1), scratch.end());
  return scratch[count - 1].score;
}

}  // namespace quire
